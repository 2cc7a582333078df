/**
 * Tells a person what runs, how far it is and how long it has to go: a bar on a terminal, plain lines elsewhere.
 * Writes to standard error, so that `--json` on standard output stays clean. Keeps no record: metrics belong to the run's files.
 */
import cliProgress from 'cli-progress'

export interface Progress {
  /** Begins a stage and ends the one before. `total` counts what `tick` counts; without it only the time is shown. */
  stage(name: string, total?: number): void
  /** `count` more are done (default 1); `note` replaces the note at the end of the line. */
  tick(count?: number, note?: string): void
  /** This many are done in all, for those who count themselves. */
  to(count: number): void
  /** Ends the stage and leaves one line about it. */
  done(note?: string): void
  /** A line of its own, above the bar. */
  line(text: string): void
  /** What is shown while no stage runs for two seconds: loading, or work that cannot be counted. null: nothing, as while somebody is waited for. */
  meanwhile(name: string | null): void
}

/** Where progress is written; `process.stderr` has this shape. */
export interface ProgressStream extends NodeJS.WritableStream {
  isTTY?: boolean
}

/** Seconds between two lines about a running stage where the output is no terminal. */
const QUIET_SECONDS = 10

/** Whoever waits longer is told what for. */
const PATIENCE_SECONDS = 2

/** What is counted this soon after a stage began was done before it. */
const FIRST_COUNT_SECONDS = 0.3

interface Stage {
  name: string
  total: number | null
  count: number
  /** Done when the stage began: a resumed one counts what was stored before, and it tells nothing of the speed. */
  before: number
  note: string
  began: number
}

/** Progress for people: a bar when `stream` is a terminal, else a line at a stage's start and end and every 10 seconds. */
export function createProgress(stream: ProgressStream = process.stderr): Progress {
  const display = stream.isTTY ? barDisplay(stream) : lineDisplay(stream)
  let stage: Stage | null = null
  let other: { name: string; timer?: NodeJS.Timeout; shown: boolean } | null = null

  function done(note?: string) {
    if (!stage) return
    display.end(
      `${[stage.name, amount(stage)].filter(Boolean).join(': ')} in ${duration(elapsed(stage))}${dash(note ?? stage.note)}`,
    )
    stage = null
    waitForStage()
  }

  function waitForStage() {
    if (!other) return
    const waiting = other
    const began = performance.now()
    waiting.timer = setTimeout(() => {
      waiting.shown = true
      display.begin({ name: waiting.name, total: null, count: 0, before: 0, note: '', began })
    }, PATIENCE_SECONDS * 1000)
    waiting.timer.unref()
  }

  function stopWaiting() {
    clearTimeout(other?.timer)
    if (other?.shown) display.end(null)
    if (other) other.shown = false
  }

  return {
    meanwhile(name) {
      stopWaiting()
      other = name === null ? null : { name, shown: false }
      if (!stage) waitForStage()
    },
    stage(name, total) {
      done()
      stopWaiting()
      stage = { name, total: total ?? null, count: 0, before: 0, note: '', began: performance.now() }
      display.begin(stage)
    },
    tick(count = 1, note) {
      if (!stage) return
      advance(stage, stage.count + count)
      if (note !== undefined) stage.note = note
      display.update(stage)
    },
    to(count) {
      if (!stage || count === stage.count) return
      advance(stage, count)
      display.update(stage)
    },
    done,
    line: (text) => display.line(text),
  }
}

function advance(stage: Stage, count: number) {
  stage.count = count
  if (elapsed(stage) < FIRST_COUNT_SECONDS) stage.before = count
}

/** Progress that says nothing, for callers that show none. */
export const silentProgress: Progress = { stage() {}, tick() {}, to() {}, done() {}, line() {}, meanwhile() {} }

/** How a stage is put before a person: one of these for terminals, one for everything else. */
interface Display {
  begin(stage: Stage): void
  update(stage: Stage): void
  /** With a line about it, or none. */
  end(summary: string | null): void
  line(text: string): void
}

function lineDisplay(stream: ProgressStream): Display {
  let timer: NodeJS.Timeout | undefined
  const write = (text: string) => stream.write(`${text}\n`)
  return {
    begin(stage) {
      write(stage.total === null ? stage.name : `${stage.name}: ${stage.total} to do`)
      timer = setInterval(() => write(`${stage.name}: ${state(stage)}`), QUIET_SECONDS * 1000)
      timer.unref()
    },
    update() {},
    end(summary) {
      clearInterval(timer)
      if (summary !== null) write(summary)
    },
    line: write,
  }
}

function barDisplay(stream: ProgressStream): Display {
  let bar: cliProgress.SingleBar | null = null
  let current: Stage | null = null
  const clear = '\r\x1b[K'
  const render: cliProgress.GenericFormatter = (options, params) => {
    if (!current) return ''
    const picture = current.total === null ? '' : `[${cliProgress.Format.BarFormat(params.progress, options)}] `
    return `${current.name} ${picture}${state(current)}`
  }
  return {
    begin(stage) {
      current = stage
      bar = new cliProgress.SingleBar({
        stream,
        format: render,
        barsize: 16,
        barCompleteChar: '█',
        barIncompleteChar: '░',
        fps: 5,
        clearOnComplete: true,
        // The stage's clock moves although nothing ticks, and lines may have been written over the bar.
        forceRedraw: true,
        linewrap: true,
        // Signals belong to the command line.
        gracefulExit: false,
      })
      bar.start(stage.total ?? 1, 0)
    },
    update(stage) {
      bar?.update(Math.min(stage.count, stage.total ?? 1))
    },
    end(summary) {
      bar?.stop()
      bar = null
      stream.write(summary === null ? clear : `${clear}${summary}\n`)
    },
    line(text) {
      stream.write(`${clear}${text}\n`)
    },
  }
}

/** `120 of 320 (38 %), 12 s, about 20 s to go, note`. */
function state(stage: Stage): string {
  const seconds = elapsed(stage)
  const parts = [amount(stage), duration(seconds)]
  const done = stage.count - stage.before
  if (stage.total !== null && done > 0 && stage.count < stage.total) {
    parts.push(`about ${duration((seconds / done) * (stage.total - stage.count))} to go`)
  }
  return parts.filter(Boolean).join(', ') + dash(stage.note)
}

function amount({ count, total }: Stage): string {
  if (total === null) return count > 0 ? String(count) : ''
  return `${count} of ${total}${total > 0 ? ` (${Math.floor((100 * count) / total)} %)` : ''}`
}

const elapsed = (stage: Stage) => (performance.now() - stage.began) / 1000

const dash = (note: string) => (note ? ` – ${note}` : '')

/** `8 s`, `3 min 20 s`, `1 h 05 min`. */
export function duration(seconds: number): string {
  const whole = Math.round(seconds)
  if (whole < 60) return `${whole} s`
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, '0')} s`
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, '0')} min`
}
