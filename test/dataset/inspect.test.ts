import { expect, test } from 'vitest'
import { formatReport, inspectDataset } from '../../src/dataset/index.ts'
import { failure, folder, row, value } from './folder.ts'

test('the leak audit finds what was planted', async () => {
  // Ten questions: the right option is always a1, always the longest, and stands in the question in two of them.
  const rows = Array.from({ length: 10 }, (_, i) =>
    row(i, { q: i < 2 ? `Is it the tall man, question ${i}?` : `Who is it in ${i}?`, a1: 'the tall man' }),
  )
  const { leaks } = value(await inspectDataset(folder({ 'x_val.json': rows })))
  expect(leaks.optionInQuestion).toEqual({ n: 2, accuracy: 1 })
  expect(leaks.longestOption).toEqual({ n: 10, accuracy: 1 })
  expect(leaks.fixedPosition).toEqual({ n: 10, accuracy: 1 })
  expect(leaks.positionChiSquared).toBe(40) // (10-2)^2/2 + 4 * (0-2)^2/2
  expect(leaks.episodesKnownFromQuestionsOnly).toBe(1)
  expect(leaks.randomClip).toEqual({ n: 10, accuracy: 1 })
})

test('ties of the longest option share; short words inside longer ones are not found', async () => {
  const options = { a0: 'ten', a1: 'two', a2: 'one', a3: 'six', a4: 'no' }
  const { leaks } = value(
    await inspectDataset(folder({ 'x_val.json': [row(1, { ...options, q: 'Who is alone with someone?' })] })),
  )
  expect(leaks.longestOption.accuracy).toBe(0.25)
  expect(leaks.optionInQuestion.n).toBe(0)
})

test('what two splits share', async () => {
  const files = {
    'x_train.json': [row(1), row(2), row(3, { occur_clip: 's05e09_seg01_clip_00', episode_name: 's05e09' })],
    'x_val.json': [row(2), row(4, { q: 'who opens THE door, in scene 1' })],
  }
  const report = value(await inspectDataset(folder(files)))
  expect(report.leaks.sharedBetweenSplits).toEqual([
    { splits: ['train', 'val'], sameQuestion: 2, sameQid: 1, sameEpisode: 1 },
  ])
  expect(report.files).toEqual([
    { file: 'x_train.json', split: 'train', rows: 3 },
    { file: 'x_val.json', split: 'val', rows: 2 },
  ])
})

test('missing subtitles, frames and videos are counted and named', async () => {
  const files = {
    'x_val.json': [row(1), row(2, { kind: 'visual' })],
    'clips.json': {
      s05e02_seg02_clip_00: { video: 'a.mp4', start: 0, end: 2 },
      s05e02_seg02_clip_01: { video: 'gone.mp4', start: 0, end: 3 },
    },
    'a.mp4': 'x',
  }
  const report = value(await inspectDataset(folder(files)))
  expect(report.subtitles).toMatchObject({ missing: 2, missingClips: ['s05e02_seg02_clip_00', 's05e02_seg02_clip_01'] })
  expect(report.pictures).toMatchObject({ video: 2, missing: 0, missingVideos: [expect.stringContaining('gone.mp4')] })
  expect(report.questionsPerKind).toEqual({ dialogue: 0, visual: 1, both: 0, unstated: 1 })
  expect(report.hours).toBeCloseTo(5 / 3600)
  expect(formatReport(report)).toMatch(/video files missing +1 \(.*gone\.mp4\)/)
})

test('a broken data set fails as it does when opened', async () => {
  expect(failure(await inspectDataset(folder({ 'x_val.json': [row(1, { a0: undefined })] }))).message).toContain(
    'option a0 is missing',
  )
})
