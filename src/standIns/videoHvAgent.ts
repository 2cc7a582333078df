/**
 * VideoHV-Agent on the miniature data set: the thinker says of every option that it is right, the judge wants the question looked up, the
 * verifier finds the line that the question is about and has the frame beside it looked at, and the answer is the option that the evidence
 * names. The answer role is also taught.
 */
import { roleOf, type Script, type StandIns, type Teacher } from './standIns.ts'

const play: Script = (messages, request) => {
  const prompt = messages[0]?.content ?? ''
  switch (roleOf(request)) {
    case 'thinker':
      return JSON.stringify({
        hypotheses: optionsIn(prompt).map(({ option, text }) => ({ option, hypothesis: `it is ${text} .` })),
      })
    case 'judge':
      return JSON.stringify({ score: 0.9, reasons: '', clue: questionIn(prompt) })
    case 'verifier':
      return verify(
        prompt,
        messages.slice(1).flatMap(({ role, content }) => (role === 'user' ? [content] : [])),
      )
    default: {
      const evidence = evidenceIn(prompt)
      const kept = optionsIn(prompt)
      // what was seen stands behind what was said
      const named = namedFirst([...evidence].reverse(), kept) ?? kept[0]
      return JSON.stringify({
        reasoning_summary: evidence.join(' '),
        conflict_resolution: '',
        final_answer: named?.option ?? 0,
        explanation: '',
      })
    }
  }
}

/** @param replies what came back after each look. */
function verify(prompt: string, replies: readonly string[]): string {
  const lines = blockIn(prompt, 'timeline').map(readLine)
  const key = keyOf(blockIn(prompt, 'clue').join(' '))
  const spoken = lines.find(
    ({ frame, text }) =>
      frame === null && text.split(' ').includes(key) && !/ tell me about the | what is at /.test(text),
  )
  if (spoken === undefined) return verdict('NOT_VERIFIED', '')
  const words = spoken.text.replace(/^\S+ : /, '')
  if (!/\b(sign|object)\b/.test(questionIn(prompt))) return verdict('VERIFIED', words)

  const reply = replies.at(-1) ?? ''
  const seen = /frame \d+ : (.*)/.exec(reply)?.[1] ?? ''
  if (seen !== '' && !/ no | mostly /.test(seen)) return verdict('VERIFIED', `${words} ${seen}`)
  if (reply.includes('no more frames')) return verdict('PARTIAL', words)
  const beside = lines.filter(({ frame, time }) => frame !== null && time >= spoken.time)[replies.length]
  if (beside === undefined) return verdict('PARTIAL', words)
  return JSON.stringify({ action: 'caption', frames: String(beside.frame) })
}

const verdict = (status: string, evidence: string) =>
  JSON.stringify({ action: 'verdict', clue_understanding: '', evidence_found: evidence, reasoning: '', status })

/** What a question is about: the place or the thing that a line has to name. */
export function keyOf(question: string): string {
  const [, key = ''] =
    / (?:at|leave the|for the|about the) (\w+) \?/.exec(question) ??
    /who gave \w+ the (\w+) \?/.exec(question) ??
    /what color is the (\w+) of /.exec(question) ??
    []
  return key
}

/**
 * Says where it takes its answer from, summary or evidence, which option is named there, and answers with that one. Taking it from the
 * summary is the habit that reinforcement has to break: the evidence was looked up for this question, the summary was not.
 */
const answer: Teacher = ({ messages, dice }) => {
  const prompt = messages[0]?.content ?? ''
  const kept = optionsIn(prompt)
  const source = dice.chance(SUMMARY_RATE) ? 'summary' : 'evidence'
  const named =
    source === 'summary'
      ? namedFirst(blockIn(prompt, 'summary').join(' ').split(' '), kept)
      : namedFirst(evidenceIn(prompt).reverse(), kept)
  return [
    { text: `{ "reasoning_summary" : " ${source}` },
    { text: named === null ? 'nothing' : `a${named.option}`, concludes: true },
    { text: '" , "conflict_resolution" : " " , "final_answer" :' },
    { text: String((named ?? dice.pick(kept)).option), ...(named === null ? {} : { concludes: true }) },
    { text: ', "explanation" : " " }' },
  ]
}

/** How often the teacher of the answer role takes its answer from the summary. */
const SUMMARY_RATE = 0.7

function namedFirst(words: readonly string[], options: readonly Option[]): Option | null {
  for (const word of words) {
    const named = options.find(({ text }) => text === word)
    if (named !== undefined) return named
  }
  return null
}

function questionIn(prompt: string): string {
  return /^question : (.*)$/m.exec(prompt)?.[1] ?? ''
}

interface Option {
  option: number
  text: string
}

function optionsIn(prompt: string): Option[] {
  return [...prompt.matchAll(/^a(\d) (?!: )(.*)$/gm)].map(([, option, text = '']) => ({ option: Number(option), text }))
}

function evidenceIn(prompt: string): string[] {
  return (/^evidence : (.*)$/m.exec(prompt)?.[1] ?? '').split(' ')
}

function blockIn(prompt: string, tag: string): string[] {
  return new RegExp(`<${tag}>\\n([\\s\\S]*?)\\n</${tag}>`).exec(prompt)?.[1]?.split('\n') ?? []
}

/** `12.5 s frame 12 : a red sign`. */
function readLine(line: string): { time: number; frame: number | null; text: string } {
  const [, time, frame, text = ''] = /^([\d.]+) s (?:frame (\d+) : )?(.*)$/.exec(line) ?? []
  return { time: Number(time), frame: frame === undefined ? null : Number(frame), text }
}

export const videoHvAgent: StandIns = {
  script: play,
  teachers: { answer },
  tokens: [
    ...['hypotheses', 'summary', 'verification'].flatMap((tag) => [`<${tag}>`, `</${tag}>`]),
    ...['reasoning_summary', 'conflict_resolution', 'final_answer', 'explanation'].map((key) => `"${key}"`),
    ...'{ } " _ clue evidence summary reasoning status verified partial'.split(' '),
  ],
}

export default play
