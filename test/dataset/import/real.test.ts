/** The import of real rows: TVQA+ and LongTVQA+ validation, TVQA's public test, TVR's durations. Expected numbers were counted by another program. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { formatReport, importDataset, inspectDataset, openBoxes, openDataset } from '../../../src/dataset/index.ts'
import { importOptions } from '../../../src/dataset/options.ts'
import { folder, row, value } from '../folder.ts'

const data = new URL('../../../../shared/data/', import.meta.url).pathname
const there = existsSync(data)
if (!there) console.warn('skipped: real rows are imported where ../shared/data exists')

async function importOf(...inputs: string[]) {
  const out = join(folder(), 'out')
  const { report } = value(
    await importDataset({
      ...importOptions.parse({ inputs: inputs.map((path) => join(data, path)), out }),
      probe: () => Promise.reject(new Error('no video here')),
    }),
  )
  const findings = Object.fromEntries(report.findings.map((finding) => [finding.reason, finding.count]))
  return { out, report, findings, dataset: value(await openDataset(out)) }
}

describe.skipIf(!there)('real rows', () => {
  test('TVQA+, the public test of TVQA and the durations of TVR', async () => {
    const { out, report, findings, dataset } = await importOf('tvqa', 'tvr')
    expect(report.splits).toMatchObject({
      val: {
        formats: ['TVQA+'],
        questions: 1575,
        answered: 1575,
        spans: 1575,
        boxes: 17_283,
        framesWithBoxes: 7_292,
        questionsWithBoxes: 1_552,
      },
      test_public: { formats: ['TVQA'], questions: 522, answered: 0, spans: 519, zeroLength: 0, boxes: 0 },
    })
    expect(findings).toEqual({
      'span/not-a-number': 3,
      'span/past-end': 1,
      'box/cut': 104,
      'box/after-clip': 10,
      'clip/no-duration': 207,
      'clip/questions-only': 207,
      'episode/unused': 6,
    })
    expect(report.episodes).toEqual({ written: 309, timed: 102, clips: 2441 })
    // as the raw files open, but for what needs the timeline
    const raw = value(await openDataset(`${data}tvqa`, { split: 'val' }))
    const mine = value(await openDataset(out, { split: 'val' }))
    expect(mine.questions).toEqual(raw.questions)
    expect([...mine.gold.values()].map(({ episodeSpan: _, ...gold }) => gold)).toEqual(
      [...raw.gold.values()].map(({ episodeSpan: _, ...gold }) => gold),
    )
    const table = JSON.parse(readFileSync(`${data}tvr/tvr_video2dur_idx.part.json`, 'utf8')) as Record<
      string,
      Record<string, [number, number]>
    >
    const seconds = Object.assign({}, ...Object.values(table)) as Record<string, [number, number]>
    for (const { id, clips } of mine.episodes.values()) {
      const sum = clips.reduce((total, clip) => total + (seconds[clip.id]?.[0] as number), 0)
      expect(clips.at(-1)?.end, id).toBeCloseTo(sum, 2)
    }
    for (const { qid, clipId, span, episodeSpan } of mine.gold.values()) {
      const clip = mine.episodes.get(clipId?.slice(0, 6) ?? '')?.clips.find((one) => one.id === clipId)
      for (const end of [0, 1] as const)
        expect(episodeSpan?.[end], qid).toBeCloseTo((clip?.start as number) + (span?.[end] as number), 1)
    }
    expect(value(await openBoxes(out, 'val')).size).toBe(1_552)
    expect(dataset.tasks()).toHaveLength(2097)
    const text = formatReport(value(await inspectDataset(out)))
    expect(text).toMatch(/TVQA\+ questions of val: 1575 of 3017/)
    expect(text).toMatch(/gold in what a policy sees +none/)
    expect(text).toMatch(/boxes +17283 on 7292 pictures, for 1552 questions/)
  })

  test('LongTVQA+ gives the same questions and gold as TVQA+', async () => {
    const long = await importOf('longtvqa_plus', 'tvr')
    const plus = await importOf('tvqa/tvqa_plus_val.half.json', 'tvr')
    expect(long.dataset.questions).toEqual(plus.dataset.questions)
    expect([...long.dataset.gold]).toEqual([...plus.dataset.gold])
    expect([...value(await openBoxes(long.out))]).toEqual([...value(await openBoxes(plus.out))])
    expect(long.report.splits.val?.formats).toEqual(['LongTVQA+'])
    const clips = [...long.dataset.episodes.values()].flatMap((episode) => episode.clips)
    expect(clips).toHaveLength(1798)
    expect(clips.filter((clip) => clip.subtitles.length > 0)).toHaveLength(162)
    expect(clips.filter((clip) => clip.source.kind === 'descriptions')).toHaveLength(225)
  })

  test('all ten double episodes, a segment that lacks a clip, one that begins at 1', async () => {
    const doubles =
      's01e16-17 s02e12-13 s04e23-24 s05e23-24 s06e15-16 s06e24-25 s07e23-24 s08e23-24 s09e23-24 s10e17-18'
    const ids = [...doubles.split(' '), 's01e01'].map((id) => `friends_${id}`)
    const questions = folder({
      'own_val.json': ids.map((id, i) => row(i, { occur_clip: `${id}_seg02_clip_03`, episode_name: id })),
    })
    const out = join(folder(), 'out')
    const inputs = [questions, `${data}tvr`]
    value(
      await importDataset({
        ...importOptions.parse({ inputs, out }),
        probe: () => Promise.reject(new Error('no video here')),
      }),
    )
    const { lengths, doubleEpisodes, episodes } = value(await inspectDataset(out))
    expect([episodes, doubleEpisodes]).toEqual([11, 10])
    expect(lengths).toMatchObject({ episodes: 11, segmentsWithGaps: 1, segmentsNotFromZero: 1 })
    const dataset = value(await openDataset(out))
    expect([...dataset.episodes.keys()].slice(0, 3)).toEqual([
      'friends_s01e01',
      'friends_s01e16-17',
      'friends_s02e12-13',
    ])
    // every clip lasts, and begins where the one before ends
    for (const { clips } of dataset.episodes.values())
      for (const [i, clip] of clips.entries()) {
        expect(clip.end).toBeGreaterThan(clip.start)
        expect(clip.start).toBe(i === 0 ? 0 : clips[i - 1]?.end)
      }
  })
})
