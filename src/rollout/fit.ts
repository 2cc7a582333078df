/** Cuts an observation to a token budget. Knows no tokenizer: the caller counts. */

/**
 * The longest head of `text` that has at most `limit` tokens once the tags left open by the cut are closed again
 * (spec longvideoagent.md, section 5, row 28). Cuts between words; a null limit means no bound. At least one piece is kept.
 */
export function fitObservation(text: string, limit: number | null, countTokens: (text: string) => number): string {
  if (limit === null || countTokens(text) <= limit) return text
  // Words, with tags whole and very long words in parts, so that there is always somewhere to cut.
  const pieces = text.match(/\s*(?:<[^<>\s]*>|[^\s<]{1,16}|<)/g) ?? []
  const headOf = (length: number): string => closeTags(pieces.slice(0, length).join(''), text)
  let fits = 1
  let tooLong = pieces.length
  while (tooLong - fits > 1) {
    const middle = Math.floor((fits + tooLong) / 2)
    if (countTokens(headOf(middle)) <= limit) fits = middle
    else tooLong = middle
  }
  return headOf(fits)
}

/** Closes what `head` leaves open, on a line of its own where the whole text does so. */
function closeTags(head: string, whole: string): string {
  const open: string[] = []
  for (const [, slash, name] of head.matchAll(/<(\/?)([^<>/\s]+)>/g)) {
    if (slash === '') open.push(name as string)
    else if (open.at(-1) === name) open.pop()
  }
  const breakBefore = (name: string): string => (whole.includes(`\n</${name}>`) ? '\n' : '')
  return open.reduceRight((closed, name) => `${closed}${breakBefore(name)}</${name}>`, head)
}
