/**
 * Files in the layout of TVQA, as many rows as wanted, made by arithmetic: questions, preprocessed subtitles, TVR's durations. Among them
 * rows with every known oddity, in known numbers. Nothing is taken from the real files.
 */
import { once } from 'node:events'
import { createWriteStream, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { finished } from 'node:stream/promises'

export interface Generated {
  /** To give to `dataset import`. */
  inputs: string[]
  rows: number
  kept: number
  /** By reason, as the report counts them. */
  findings: Record<string, number>
}

const SHOWS: [string, string][] = [
  ['', 'The Big Bang Theory'],
  ['friends_', 'Friends'],
  ['met_', 'How I Met You Mother'],
  ['grey_', "Grey's Anatomy"],
  ['house_', 'House M.D.'],
  ['castle_', 'Castle'],
]

/** The whole of TVQA has 924 episodes, 21,793 clips and 152,545 questions. */
export const WHOLE = { episodes: 924, clips: 21_793, questions: 152_545 }

const two = (n: number) => String(n).padStart(2, '0')

export interface Size {
  episodes: number
  clips: number
  questions: number
}

export async function generateTvqa(folder: string, size: Size, form: 'lines' | 'array' = 'lines'): Promise<Generated> {
  mkdirSync(folder, { recursive: true })
  const clips = clipNames(size)
  const questions = join(folder, 'tvqa_train.jsonl')
  const subtitles = join(folder, 'tvqa_preprocessed_subtitles.jsonl')
  const durations = join(folder, 'tvr_video2dur_idx.json')

  const findings: Record<string, number> = {}
  const found = (reason: string) => {
    findings[reason] = (findings[reason] ?? 0) + 1
  }
  let kept = 0
  await write(questions, function* () {
    if (form === 'array') yield '['
    for (let i = 0; i < size.questions; i++) {
      const { row, reason, drops } = questionRow(i, clips[i % clips.length] as Clip)
      if (reason) found(reason)
      if (!drops) kept++
      yield `${form === 'array' && i > 0 ? ',' : ''}${JSON.stringify(row)}\n`
    }
    if (form === 'array') yield ']'
  })
  await write(subtitles, function* () {
    for (const { name } of clips) {
      const sub = Array.from({ length: 27 }, (_, i) => ({
        text: `${i % 4 === 3 ? '' : `Speaker${i % 5} : `}line ${i} of ${name}, said in so many words .`,
        start: i * 2.25,
        end: i * 2.25 + 2,
      }))
      yield `${JSON.stringify({ vid_name: name, sub })}\n`
    }
  })
  await write(durations, function* () {
    yield '{"train": {'
    for (const [i, { name, seconds }] of clips.entries()) yield `${i > 0 ? ', ' : ''}"${name}": [${seconds}, ${i}]`
    yield '}}'
  })
  return { inputs: [questions, subtitles, durations], rows: size.questions, kept, findings }
}

interface Clip {
  name: string
  title: string
  seconds: number
}

/** Episodes with one or two segments; every 92nd is a double one, and some segments lack an index. */
function clipNames({ episodes, clips }: Size): Clip[] {
  const all: Clip[] = []
  for (let episode = 0; episode < episodes; episode++) {
    const [prefix, title] = SHOWS[episode % SHOWS.length] as [string, string]
    const number = Math.floor(episode / SHOWS.length)
    const id = `${prefix}s${two(Math.floor(number / 20) + 1)}e${two((number % 20) + 1)}${episode % 92 === 91 ? `-${two((number % 20) + 2)}` : ''}`
    const count = Math.floor(clips / episodes) + (episode < clips % episodes ? 1 : 0)
    const first = episode % 5 < 3 ? 2 : 0
    for (let i = 0; i < count; i++) {
      const index = i < first ? i : i - first + (episode % 27 === 5 && i - first > 3 ? 1 : 0)
      all.push({
        name: `${id}_seg${i < first ? '01' : '02'}_clip_${two(index)}`,
        title,
        seconds: 60 + ((episode * 31 + i * 17) % 3000) / 100,
      })
    }
  }
  return all
}

const ODD_EVERY = 97

function questionRow(i: number, clip: Clip): { row: Record<string, unknown>; reason: string | null; drops: boolean } {
  const start = (i * 37) % 50
  const row: Record<string, unknown> = {
    a0: `The first thing that somebody might say about matter ${i}`,
    a1: `Another thing, a little longer than the one before, number ${i}`,
    a2: `Nothing at all happened, and nobody was there`,
    a3: `It was ${clip.title} all along`,
    a4: `The fifth option of question ${i}`,
    answer_idx: i % 5,
    q: `What happens in the clip after somebody comes in and asks about matter number ${i} ?`,
    qid: i,
    show_name: clip.title,
    ts: `${start}.5-${start + 8}.25`,
    vid_name: clip.name,
  }
  if (i % ODD_EVERY !== 0 || i === 0) return { row, reason: null, drops: false }
  const odd = ODDITIES[(i / ODD_EVERY) % ODDITIES.length] as Oddity
  return { row: { ...row, ...odd.change(clip, i) }, reason: odd.reason, drops: odd.drops }
}

interface Oddity {
  reason: string
  drops: boolean
  change(clip: Clip, i: number): Record<string, unknown>
}

const ODDITIES: Oddity[] = [
  { reason: 'span/not-a-number', drops: false, change: () => ({ ts: 'NaN-NaN' }) },
  { reason: 'span/zero-length', drops: false, change: () => ({ ts: '12.5-12.5' }) },
  { reason: 'span/past-end', drops: false, change: () => ({ ts: '50-300' }) },
  { reason: 'span/outside', drops: false, change: () => ({ ts: '200-300' }) },
  { reason: 'span/reversed', drops: false, change: () => ({ ts: '20-10' }) },
  { reason: 'span/format', drops: false, change: () => ({ ts: 'early' }) },
  { reason: 'row/option', drops: true, change: () => ({ a3: '' }) },
  { reason: 'row/answer', drops: true, change: () => ({ answer_idx: 7 }) },
  {
    reason: 'row/show',
    drops: true,
    change: ({ title }) => ({ show_name: title === 'Castle' ? 'Friends' : 'Castle' }),
  },
  { reason: 'row/clip', drops: true, change: () => ({ vid_name: 'the_kitchen' }) },
  { reason: 'row/unknown-clip', drops: true, change: ({ name }) => ({ vid_name: name.replace(/\d\d$/, '99') }) },
  // the row before this one, once more with other words
  { reason: 'row/qid-taken', drops: true, change: (_, i) => ({ qid: i - 1 }) },
]

/** Writes with patience: the whole of TVQA must not stand in memory here either. */
async function write(path: string, pieces: () => Generator<string>): Promise<void> {
  const stream = createWriteStream(path)
  let waiting = ''
  for (const piece of pieces()) {
    waiting += piece
    if (waiting.length < 256 * 1024) continue
    if (!stream.write(waiting)) await once(stream, 'drain')
    waiting = ''
  }
  stream.end(waiting)
  await finished(stream)
}
