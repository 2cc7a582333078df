/**
 * The one parser of what a master writes. Reads the policy's own text of one turn, never a prompt or an observation.
 * It does not execute anything, does not look at the episode, and is never lenient: what it does not recognise is `invalid`.
 *
 * Grammar (spec longvideoagent.md, section 5, rows 1-3, 5, 8, 18):
 *
 *   turn      = [ reasoning ] action
 *   reasoning = <reasoning> ... </reasoning>              nothing inside counts
 *   action    = <visual_query> query </visual_query>      alias <search>
 *             | <request_grounding/>                      also a lone opening tag at the end, and paired, with words or without
 *             | <answer> label </answer>                  a3, 3, or "a3: text"; any case; one of the question's labels
 */
import type { Action } from '../types.ts'

/** What the grammar knows. */
export type MasterAction = Extract<Action, { kind: 'ground' | 'look' | 'answer' | 'invalid' }>

export interface ParsedAction {
  action: MasterAction
  /** True when the text is exactly `turn` of the grammar above, white space aside. */
  wellFormed: boolean
  /** Where the executed action ends in the text; the text's length when there is none. */
  end: number
}

/** Where generation may stop: after the tag that completes an action. */
export const actionStops: readonly string[] = [
  '</visual_query>',
  '</search>',
  '<request_grounding/>',
  '</request_grounding>',
  '</answer>',
]

/**
 * Reads the action of one turn. With several actions the turn is not well formed, and one counts: the `earliest` complete one, where
 * an action is complete when its tag is closed with no other tag of the grammar in between; or, by `priority`, what the released code
 * takes: the first visual query anywhere, reasoning included, else grounding, else an answer.
 * @param options how many options the question has: labels are a0 to the one before.
 */
export function parseAction(
  text: string,
  choice: 'earliest' | 'priority' = 'earliest',
  options = FIVE_OPTIONS,
): ParsedAction {
  const blocks = reasoningBlocks(text)
  const all = scanTags(text)
  const tags = all.filter((tag) => !blocks.some((block) => tag.start >= block.start && tag.end <= block.end))
  const found = choice === 'earliest' ? earliestComplete(text, tags, options) : byPriority(text, all, options)
  if (found === null)
    return invalid(
      tags.length === 0
        ? noActionProblem(text, blocks)
        : `the tag ${text.slice(tags[0]?.start, tags[0]?.end)} is not part of a complete action`,
      text.length,
    )

  const { action, start, end } = found
  if (action.kind === 'invalid') return invalid(action.problem, end)
  const [first] = blocks
  const bodyStart = first !== undefined && text.slice(0, first.start).trim() === '' ? first.end : 0
  const lone = text.slice(bodyStart, start).trim() === '' && text.slice(end).trim() === ''
  const simpleReasoning = bodyStart === 0 || scanReasoningTags(text.slice(0, bodyStart)) === 2
  return { action, wellFormed: lone && simpleReasoning, end }
}

/** As in LongTVQA. */
const FIVE_OPTIONS = 5

interface Tag {
  name: 'visual_query' | 'search' | 'request_grounding' | 'answer'
  form: 'open' | 'close' | 'self'
  start: number
  end: number
}

interface Span {
  start: number
  end: number
}

function invalid(problem: string, end: number): ParsedAction {
  return { action: { kind: 'invalid', problem }, wellFormed: false, end }
}

function scanTags(text: string): Tag[] {
  const tags: Tag[] = []
  for (const match of text.matchAll(/<(\/?)(visual_query|search|request_grounding|answer)( ?\/)?>/g)) {
    const form = match[1] === '/' ? 'close' : match[3] === undefined ? 'open' : 'self'
    tags.push({ name: match[2] as Tag['name'], form, start: match.index, end: match.index + match[0].length })
  }
  return tags
}

/** Reasoning from its opening tag to the next closing tag, or to the end of the text when it is never closed. */
function reasoningBlocks(text: string): Span[] {
  const blocks: Span[] = []
  for (let from = 0; ; ) {
    const start = text.indexOf('<reasoning>', from)
    if (start < 0) return blocks
    const close = text.indexOf('</reasoning>', start)
    from = close < 0 ? text.length : close + '</reasoning>'.length
    blocks.push({ start, end: from })
  }
}

function scanReasoningTags(text: string): number {
  return text.match(/<\/?reasoning>/g)?.length ?? 0
}

function noActionProblem(text: string, blocks: readonly Span[]): string {
  if (text.trim() === '') return 'the turn is empty'
  const last = blocks.at(-1)
  if (last?.end === text.length && !text.endsWith('</reasoning>')) return 'the reasoning is not closed'
  if (last !== undefined && scanTags(text).length > 0) return 'the only action tags are inside the reasoning'
  return 'there is no action tag'
}

function earliestComplete(
  text: string,
  tags: readonly Tag[],
  options: number,
): (Span & { action: MasterAction }) | null {
  for (const [index, tag] of tags.entries()) {
    if (tag.name === 'request_grounding' && tag.form === 'self')
      return { start: tag.start, end: tag.end, action: { kind: 'ground' } }
    if (tag.form !== 'open') continue
    const next = tags[index + 1]
    if (next !== undefined && next.name === tag.name && next.form === 'close') {
      return {
        start: tag.start,
        end: next.end,
        action: readContent(tag.name, text.slice(tag.end, next.start), options),
      }
    }
    if (tag.name === 'request_grounding' && text.slice(tag.end).trim() === '')
      return { start: tag.start, end: tag.end, action: { kind: 'ground' } }
  }
  return null
}

/** Names in the order of the released code's regular expressions, each of which takes the text from a tag to the next that closes it. */
function byPriority(text: string, tags: readonly Tag[], options: number): (Span & { action: MasterAction }) | null {
  for (const names of [['visual_query', 'search'], ['request_grounding'], ['answer']]) {
    const own = tags.filter(({ name }) => names.includes(name))
    const open = own.find(({ form }) => form !== 'close')
    if (open === undefined) continue
    if (open.form === 'self' && open.name !== 'request_grounding') continue
    const close = own.find(({ name, form, start }) => name === open.name && form === 'close' && start >= open.end)
    if (open.form === 'open' && close !== undefined)
      return {
        start: open.start,
        end: close.end,
        action: readContent(open.name, text.slice(open.end, close.start), options),
      }
    if (open.form === 'self' || (open.name === 'request_grounding' && text.slice(open.end).trim() === ''))
      return { start: open.start, end: open.end, action: { kind: 'ground' } }
  }
  return null
}

function readContent(name: Tag['name'], content: string, options: number): MasterAction {
  const trimmed = content.trim()
  if (name === 'request_grounding') return trimmed === '' ? { kind: 'ground' } : { kind: 'ground', query: trimmed }
  if (name === 'answer') return readAnswer(trimmed, options)
  return trimmed === '' ? { kind: 'invalid', problem: 'the visual query is empty' } : { kind: 'look', query: trimmed }
}

/** Full match of `a?N`, or "aN: text" on one line in which no second label stands. */
function readAnswer(content: string, options: number): MasterAction {
  const [, digits, text = ''] = /^a?(0|[1-9]\d*)$/i.exec(content) ?? /^a(0|[1-9]\d*) ?: ?(\S.*)$/i.exec(content) ?? []
  const isLabel = (number: string | undefined): boolean => number !== undefined && Number(number) < options
  const second = [...text.matchAll(/\ba(0|[1-9]\d*)\b/gi)].some(([, number]) => isLabel(number))
  if (isLabel(digits) && !second) return { kind: 'answer', option: Number(digits) }
  return {
    kind: 'invalid',
    problem: content === '' ? 'the answer is empty' : `the answer is not one of the labels a0 to a${options - 1}`,
  }
}
