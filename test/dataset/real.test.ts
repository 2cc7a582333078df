/** The reader on real rows: TVQA+ and LongTVQA+ validation rows of 94 episodes, and TVQA's public test rows of all six shows. */
import { existsSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { formatReport, inspectDataset, openDataset } from '../../src/dataset/index.ts'
import { value } from './folder.ts'

const data = new URL('../../../shared/data/', import.meta.url).pathname
const there = existsSync(data)
if (!there) console.warn('skipped: real rows are tested where ../shared/data exists')

describe.skipIf(!there)('real rows', () => {
  test('LongTVQA+: every row, every clip, nothing secret in a task', async () => {
    const dataset = value(await openDataset(`${data}longtvqa_plus`))
    expect([dataset.questions.length, dataset.episodes.size, dataset.gold.size, dataset.notes]).toEqual([
      1575,
      94,
      1575,
      [],
    ])
    const clips = [...dataset.episodes.values()].flatMap((episode) => episode.clips)
    expect(clips).toHaveLength(225)
    expect(clips.filter((clip) => clip.subtitles.length === 0)).toHaveLength(63)
    expect(clips.every((clip) => clip.source.kind === 'descriptions')).toBe(true)
    for (const gold of dataset.gold.values()) expect(gold.span).not.toBeNull()
    const text = JSON.stringify(dataset.tasks().map((task) => task.question))
    expect(new Set(text.match(/"[a-zA-Z_]+":/g))).toEqual(new Set(['"qid":', '"episodeId":', '"text":', '"options":']))
  })

  test('TVQA+ as first published gives the same questions and gold as LongTVQA+', async () => {
    const renamed = value(await openDataset(`${data}longtvqa_plus`))
    const raw = value(await openDataset(`${data}tvqa`, { split: 'val' }))
    expect(raw.questions).toEqual(renamed.questions)
    expect([...raw.gold]).toEqual([...renamed.gold])
  })

  test("TVQA's public test rows: six shows, double episodes, spans that are NaN", async () => {
    const dataset = value(await openDataset(`${data}tvqa`, { split: 'test_public' }))
    const episodes = [...dataset.episodes.values()]
    expect(dataset.questions).toHaveLength(522)
    expect(new Set(episodes.map((episode) => episode.show))).toEqual(
      new Set(['bbt', 'castle', 'friends', 'grey', 'house', 'met']),
    )
    expect(episodes.some((episode) => /e\d\d-\d\d$/.test(episode.id))).toBe(true)
    expect(dataset.notes).toEqual([
      '522 questions have no answer: rollouts can run, rewards cannot',
      '3 time spans are not usable (NaN or reversed) and count as absent',
    ])
  })

  test('inspect: counts and leaks', async () => {
    const report = value(await inspectDataset(`${data}longtvqa_plus`))
    expect(report).toMatchObject({
      questions: 1575,
      episodes: 94,
      clips: 225,
      clipsPerEpisode: { min: 1, median: 2, max: 7 },
      answerPositions: [316, 309, 321, 315, 314],
      subtitles: { timed: 0, untimed: 162, missing: 63 },
      pictures: { descriptions: 225, missing: 0 },
      leaks: { goldKeysInTasks: [], episodesKnownFromQuestionsOnly: 0 },
    })
    // Annotators wrote the right answer longest more often than chance: a finding about TVQA+, not a property of the reader.
    expect(report.leaks.longestOption.accuracy).toBeCloseTo(0.365, 2)
    expect(formatReport(report)).toContain('missing in 63')
  })
})
