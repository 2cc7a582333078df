import { Writable } from 'node:stream'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { createProgress, duration } from '../../src/progress.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'setTimeout', 'clearTimeout', 'performance', 'Date'] })
})
afterEach(() => {
  vi.useRealTimers()
})

function written(isTTY: boolean) {
  let text = ''
  const stream = new Writable({
    write(chunk, _encoding, done) {
      text += chunk
      done()
    },
  })
  return { progress: createProgress(Object.assign(stream, { isTTY })), text: () => text }
}

describe('where the output is no terminal', () => {
  test('a line at the start and the end of a stage, and every ten seconds how far it is', () => {
    const { progress, text } = written(false)
    progress.stage('rolling out', 40)
    vi.advanceTimersByTime(5000)
    progress.tick(10, 'reward 0.5')
    vi.advanceTimersByTime(5000)
    progress.tick(30)
    vi.advanceTimersByTime(2000)
    progress.done('all stored')
    vi.advanceTimersByTime(60_000)
    expect(text().split('\n')).toEqual([
      'rolling out: 40 to do',
      'rolling out: 10 of 40 (25 %), 10 s, about 30 s to go – reward 0.5',
      'rolling out: 40 of 40 (100 %) in 12 s – all stored',
      '',
    ])
    expect(text()).not.toContain('\x1b')
  })

  test('what takes longer than two seconds outside stages is named, and says no more when a stage begins', () => {
    const { progress, text } = written(false)
    progress.meanwhile('report')
    vi.advanceTimersByTime(1900)
    expect(text()).toBe('')
    vi.advanceTimersByTime(12_000)
    progress.stage('reading', 2)
    progress.tick(2)
    progress.done()
    vi.advanceTimersByTime(1900)
    progress.meanwhile(null)
    vi.advanceTimersByTime(60_000)
    expect(text().split('\n')).toEqual([
      'report',
      'report: 12 s',
      'reading: 2 to do',
      'reading: 2 of 2 (100 %) in 0 s',
      '',
    ])
  })

  test('a new stage ends the one before; without a total only the time is told', () => {
    const { progress, text } = written(false)
    progress.stage('loading')
    vi.advanceTimersByTime(10_000)
    progress.line('found 3 files')
    progress.stage('next', 2)
    progress.done()
    expect(text().split('\n')).toEqual([
      'loading',
      'loading: 10 s',
      'found 3 files',
      'loading in 10 s',
      'next: 2 to do',
      'next: 0 of 2 (0 %) in 0 s',
      '',
    ])
  })

  test('what a resumed stage had done before says nothing about its speed', () => {
    const { progress, text } = written(false)
    progress.stage('training', 100)
    progress.to(80)
    vi.advanceTimersByTime(9000)
    progress.to(90)
    vi.advanceTimersByTime(1000)
    expect(text()).toContain('training: 90 of 100 (90 %), 10 s, about 10 s to go')
    progress.done()
  })
})

test('on a terminal there is a bar, lines stand above it, and a summary remains', () => {
  const { progress, text } = written(true)
  progress.stage('rendering', 4)
  vi.advanceTimersByTime(1000)
  progress.tick(2)
  vi.advanceTimersByTime(1000)
  progress.line('a warning')
  vi.advanceTimersByTime(1000)
  progress.tick(2)
  progress.done('4 episodes')
  expect(text()).toContain('rendering [████████░░░░░░░░] 2 of 4 (50 %), 2 s, about 2 s to go')
  expect(text()).toContain('\x1b[Ka warning\n')
  expect(text().endsWith('\x1b[Krendering: 4 of 4 (100 %) in 3 s – 4 episodes\n')).toBe(true)
})

test('durations', () => {
  expect([0, 59.4, 60, 200, 3599, 3600, 3900].map(duration)).toEqual([
    '0 s',
    '59 s',
    '1 min 00 s',
    '3 min 20 s',
    '59 min 59 s',
    '1 h 00 min',
    '1 h 05 min',
  ])
})
