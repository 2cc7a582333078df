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
      const placeOf = ({ text }: { text: string }) => evidence.lastIndexOf(text)
      // what was seen stands behind what was said
      const last = kept.reduce((best, one) => (placeOf(one) > placeOf(best) ? one : best))
      return JSON.stringify({
        reasoning_summary: evidence.join(' '),
        conflict_resolution: '',
        final_answer: last.option,
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

/** Says what the evidence names, then answers with any of the options that are left. */
const answer: Teacher = ({ messages, task, gold, dice }) => {
  const prompt = messages[0]?.content ?? ''
  const right = task.question.options[gold.answer] as string
  const names = evidenceIn(prompt).includes(right)
  const guess = dice.pick(optionsIn(prompt)).option
  return [
    { text: '{ "reasoning_summary" : "' },
    { text: names ? `a${gold.answer}` : 'nothing', concludes: true },
    { text: `" , "conflict_resolution" : " " , "final_answer" : ${guess} , "explanation" : " " }` },
  ]
}

function questionIn(prompt: string): string {
  return /^question : (.*)$/m.exec(prompt)?.[1] ?? ''
}

function optionsIn(prompt: string): { option: number; text: string }[] {
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
    ...'{ } " _ clue evidence reasoning status verified partial'.split(' '),
  ],
}

export default play
