import iconv from 'iconv-lite'
import { expect, test } from 'vitest'
import { openDataset } from '../../src/dataset/index.ts'
import { failure, folder, row, value } from './folder.ts'

const open = async (files: Record<string, unknown>, split?: string) => openDataset(folder(files), { split })

test('the same rows as array, as object and as lines, whatever the extension', async () => {
  const rows = [row(1), row(2)]
  for (const files of [
    { 'LongTVQA_val.jsonl': rows },
    { 'LongTVQA_plus_val.json': { '1': rows[0], '2': rows[1] } },
    { 'tvqa_val.json': rows.map((one) => JSON.stringify(one)).join('\n') },
  ]) {
    const dataset = value(await open(files))
    expect(dataset.questions.map((question) => question.qid)).toEqual(['1', '2'])
    expect(dataset.gold.get('2')).toEqual({
      qid: '2',
      answer: 1,
      clipId: 's05e02_seg02_clip_01',
      span: [1.5, 4],
      episodeSpan: null,
      kind: null,
    })
  }
})

test.each([
  ['a3', 3],
  ['3', 3],
  [3, 3],
  [' A0 ', 0],
])('answer %j is option %i', async (answer, index) => {
  expect(value(await open({ 'x_val.json': [row(1, { answer })] })).gold.get('1')?.answer).toBe(index)
})

test("TVQA's own column names", async () => {
  const raw = row(1, {
    answer: undefined,
    answer_idx: '4',
    occur_clip: undefined,
    episode_name: undefined,
    vid_name: 'castle_s01e02_seg02_clip_03',
    ts: '76.01-84.2',
  })
  const dataset = value(await open({ 'tvqa_val.jsonl': JSON.stringify(raw) }))
  expect(dataset.gold.get('1')).toMatchObject({ answer: 4, clipId: 'castle_s01e02_seg02_clip_03', span: [76.01, 84.2] })
  expect([...dataset.episodes.values()]).toMatchObject([{ id: 'castle_s01e02', show: 'castle' }])
})

test('spans that are no numbers, reversed or of no length', async () => {
  const spans = ['NaN-NaN', '12.5-nan', [4, 1], [2, 2], undefined]
  const dataset = value(await open({ 'x.json': spans.map((ts, i) => row(i, { ts })) }))
  expect(spans.map((_, i) => dataset.gold.get(String(i))?.span)).toEqual([null, null, null, [2, 2], null])
  expect(dataset.notes.join()).toContain('3 time spans are not usable')
})

test('a public test file has questions and no gold, and says so', async () => {
  const dataset = value(await open({ 'tvqa_test_public.jsonl': [row(1, { answer: undefined })] }))
  expect(dataset.tasks()).toHaveLength(1)
  expect(dataset.gold.size).toBe(0)
  expect(dataset.notes).toEqual(['1 question has no answer: rollouts can run, rewards cannot'])
})

test('splits by file name; an unknown one lists those there are', async () => {
  const files = { 'LongTVQA_train.jsonl': [row(1)], 'LongTVQA_val.jsonl': [row(2)] }
  expect(value(await open(files, 'val')).questions.map((question) => question.qid)).toEqual(['2'])
  const both = value(await open(files))
  expect([...both.splitOf]).toEqual([
    ['1', 'train'],
    ['2', 'val'],
  ])
  expect(failure(await open(files, 'test')).message).toMatch(
    /no question file of split "test"; it has LongTVQA_train\.jsonl \(train\), LongTVQA_val\.jsonl \(val\)/,
  )
})

test('an episode has every clip that any file names, in order, with its text and descriptions', async () => {
  const dataset = value(
    await open({
      'x_val.json': [row(1)],
      'LongTVQA_plus_subtitle_clip_level.json': {
        s05e02_seg02_clip_10: 'Raj : Look .',
        s05e02_seg02_clip_01: 'Penny : Hi . <eos> Leonard : Hello .',
        s05e03_seg02_clip_00: 'another episode',
      },
      'LongTVQA_plus_subtitle_episode_level.json': { s05e02: '<seg01_clip_00>not read</seg01_clip_00>' },
      'visual_descriptions.json': { s05e02_seg01_clip_02: [{ start: 0, end: 3, text: 'A door opens. ' }] },
    }),
  )
  const [episode] = [...dataset.episodes.values()]
  expect(episode?.clips.map((clip) => [clip.index, clip.id])).toEqual([
    [0, 's05e02_seg01_clip_02'],
    [1, 's05e02_seg02_clip_01'],
    [2, 's05e02_seg02_clip_10'],
  ])
  expect(episode?.clips[0]?.source).toEqual({
    kind: 'descriptions',
    lines: [{ start: 0, end: 3, text: 'A door opens.' }],
  })
  expect(episode?.clips[1]).toMatchObject({
    start: 0,
    end: 0,
    source: { kind: 'none' },
    subtitles: [
      { speaker: 'Penny', text: 'Hi .' },
      { speaker: 'Leonard', text: 'Hello .' },
    ],
  })
})

test('offsets are running sums of durations, and absent when one is unknown', async () => {
  const files = {
    'x_val.json': [row(1)],
    'LongTVQA_subtitles_clip_level.jsonl': { s05e02_seg01_clip_00: 'a', s05e02_seg02_clip_00: 'b' },
  }
  const table = { s05e02_seg01_clip_00: [60.5, 1], s05e02_seg02_clip_00: [61, 2], s05e02_seg02_clip_01: [59.25, 3] }
  const spans = async (durations: object) =>
    [...value(await open({ ...files, 'tvr_video2dur_idx.json': { val: durations } })).episodes.values()][0]?.clips.map(
      ({ start, end }) => [start, end],
    )
  expect(await spans(table)).toEqual([
    [0, 60.5],
    [60.5, 121.5],
    [121.5, 180.75],
  ])
  expect(await spans({ ...table, s05e02_seg02_clip_00: undefined })).toEqual([
    [0, 0],
    [0, 0],
    [0, 0],
  ])
})

test("frames in a show's folder: 3 per second, counted", async () => {
  const frames = Object.fromEntries(
    [1, 2, 3, 4, 5, 6].map((n) => [`bbt_frames/s05e02_seg02_clip_01/0000${n}.jpg`, 'x']),
  )
  const root = folder({ 'x_val.json': [row(1)], ...frames, 'bbt_frames/s05e02_seg02_clip_01/Thumbs.db': 'x' })
  const [episode] = [...value(await openDataset(root)).episodes.values()]
  expect(episode?.clips[0]).toMatchObject({
    end: 2,
    source: { kind: 'frames', fps: 3, count: 6, directory: `${root}/bbt_frames/s05e02_seg02_clip_01` },
  })
})

test('clips.json: video files, and timed subtitles in any encoding before untimed ones', async () => {
  const root = folder({
    'x_val.json': [row(1)],
    'clips.json': {
      s05e02_seg02_clip_00: { video: 'videos/e.mp4', start: 0, end: 4.5 },
      s05e02_seg02_clip_01: { video: 'videos/e.mp4', start: 4.5, end: 9 },
    },
    'x_subtitle_clip_level.json': { s05e02_seg02_clip_00: 'Raj : untimed', s05e02_seg02_clip_01: 'Raj : untimed' },
    'subtitles/s05e02_seg02_clip_01.srt': iconv.encode(
      '1\n00:00:01,000 --> 00:00:02,000\n(Zoé:)Voilà, le café est prêt.\n',
      'iso-8859-1',
    ),
  })
  const dataset = value(await openDataset(root))
  const [episode] = [...dataset.episodes.values()]
  expect(episode?.clips[1]).toEqual({
    id: 's05e02_seg02_clip_01',
    index: 1,
    start: 4.5,
    end: 9,
    subtitles: [{ speaker: 'Zoé', text: 'Voilà, le café est prêt.', start: 1, end: 2 }],
    source: { kind: 'video', path: `${root}/videos/e.mp4`, offset: 4.5, duration: 4.5 },
  })
  expect(episode?.clips[0]?.subtitles).toEqual([{ speaker: 'Raj', text: 'untimed' }])
  expect(dataset.notes.join()).toMatch(/1 subtitle file was read as (ISO-8859-1|windows-1252), not UTF-8/)
})

test('rows that repeat are read once and counted; rows that contradict are an error', async () => {
  const dataset = value(
    await open({
      'LongTVQA_val.jsonl': [row(1), row(2)],
      'LongTVQA_val_normalized.jsonl': [row(1, { vid_name: 's05e02_seg02_clip_01', answer_idx: '1' }), row(2)],
    }),
  )
  expect(dataset.questions).toHaveLength(2)
  expect(dataset.notes).toEqual(['2 rows repeat an earlier row of the same qid and were read once'])
  expect(failure(await open({ 'x.json': [row(1), row(2), row(1, { answer: 'a2' })] })).message).toMatch(
    /x\.json row 3 \(qid 1\): duplicate qid: .*x\.json row 1 \(qid 1\)/,
  )
})

const bad: [string, Record<string, unknown>, string, RegExp][] = [
  [
    'no option',
    { 'x_val.json': [row(1), row(7, { a3: undefined })] },
    'bad_file',
    /x_val\.json row 2 \(qid 7\): option a3 is missing.*got nothing/,
  ],
  ['an empty option', { 'x_val.json': [row(7, { a0: ' ' })] }, 'bad_file', /qid 7\): option a0 is missing/],
  [
    'no question',
    { 'x_val.json': [row(7, { q: undefined })] },
    'bad_file',
    /qid 7\): expected the question's text in q/,
  ],
  [
    'no qid',
    { 'x_val.jsonl': `${JSON.stringify(row(1))}\n${JSON.stringify(row(2, { qid: null }))}` },
    'bad_file',
    /x_val\.jsonl line 2: expected qid/,
  ],
  [
    'a sixth answer',
    { 'x_val.json': [row(7, { answer: 'a5' })] },
    'bad_file',
    /qid 7\): expected the answer as "a0".."a4" or 0..4, got "a5"/,
  ],
  [
    'a span of words',
    { 'x_val.json': [row(7, { ts: 'early' })] },
    'bad_file',
    /qid 7\): expected ts as .* got "early"/,
  ],
  [
    'a made-up clip',
    { 'x_val.json': [row(7, { occur_clip: 'the_kitchen' })] },
    'bad_file',
    /qid 7\): unknown clip "the_kitchen"; expected a name of the form/,
  ],
  [
    'a clip of another episode',
    { 'x_val.json': [row(7, { episode_name: 's01e01' })] },
    'bad_file',
    /qid 7\): unknown clip "s05e02_seg02_clip_01" in episode "s01e01"/,
  ],
  [
    'a clip that clips.json lacks',
    { 'x_val.json': [row(7)], 'clips.json': { s05e02_seg01_clip_00: { video: 'v.mp4', start: 0, end: 1 } } },
    'bad_file',
    /qid 7\): unknown clip .*clips\.json lists 1 other/,
  ],
  [
    'a kind of its own',
    { 'x_val.json': [row(7, { kind: 'audio' })] },
    'bad_file',
    /qid 7\): expected kind to be dialogue, visual, both/,
  ],
  [
    'an answer without a clip',
    { 'x_val.json': [row(7, { occur_clip: undefined })] },
    'bad_file',
    /qid 7\): has an answer but no occur_clip/,
  ],
  ['an empty file', { 'x_val.json': '' }, 'bad_file', /x_val\.json: the file is empty/],
  ['no rows', { 'x_val.json': [] }, 'bad_file', /x_val\.json: holds no questions/],
  ['wrong JSON', { 'x_val.json': '[{"qid": 1,\n "q": }]' }, 'bad_file', /x_val\.json: not JSON at line 2, column 7/],
  ['no question file', { 'visual_descriptions.json': {} }, 'missing_file', /no question file/],
  [
    'broken subtitles',
    { 'x_val.json': [row(1)], 'subtitles/s05e02_seg02_clip_01.srt': 'hello' },
    'bad_file',
    /s05e02_seg02_clip_01\.srt: no subtitle found/,
  ],
  [
    'descriptions of another form',
    { 'x_val.json': [row(1)], 'visual_descriptions.json': { s05e02_seg02_clip_01: 'text' } },
    'bad_file',
    /visual_descriptions\.json: s05e02_seg02_clip_01: expected \[\{start, end, text\}\]/,
  ],
  ['an unfinished miniature', { 'LongTVQA_miniature_train.json': [row(1)] }, 'bad_file', /unfinished/],
]
test.each(bad)('%s is a failure that names it', async (_, files, kind, message) => {
  const failed = failure(await open(files))
  expect(failed).toMatchObject({ boundary: 'dataset', kind })
  expect(failed.message).toMatch(message)
  expect(failed.message).not.toContain('\n')
})

test('a folder that is not there', async () => {
  expect(failure(await openDataset('/nowhere/at/all'))).toMatchObject({
    kind: 'missing_file',
    message: expect.stringContaining('/nowhere/at/all'),
  })
})
