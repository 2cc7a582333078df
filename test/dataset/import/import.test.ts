import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import iconv from 'iconv-lite'
import { expect, test } from 'vitest'
import {
  formatReport,
  type ImportArguments,
  importDataset,
  inspectDataset,
  openBoxes,
  openDataset,
} from '../../../src/dataset/index.ts'
import { importOptions } from '../../../src/dataset/options.ts'
import { runImport } from '../../../src/import.ts'
import { createProgress } from '../../../src/progress.ts'
import { encodeVideo } from '../../../src/video/index.ts'
import { failure, folder, row, value } from '../folder.ts'
import { generateTvqa } from './generate.ts'

/** A video is as many seconds long as it has bytes; empty ones cannot be read. */
const probe: ImportArguments['probe'] = async (path) => {
  const duration = statSync(path).size
  return duration > 0
    ? { ok: true, value: { duration, hasVideo: true } }
    : { ok: false, failure: { boundary: 'video', kind: 'bad_file', message: `${path}: an empty file` } }
}

async function run(files: Record<string, unknown>, options: Partial<ImportArguments> = {}) {
  const raw = folder(files)
  const out = join(folder(), 'out')
  const imported = await importDataset({ ...importOptions.parse({ inputs: [raw], out }), probe, ...options })
  return { raw, out, imported }
}

/** Imports and opens; findings by reason. */
async function open(files: Record<string, unknown>, options: Partial<ImportArguments> = {}) {
  const { raw, out, imported } = await run(files, options)
  const { report } = value(imported)
  const findings = Object.fromEntries(report.findings.map((finding) => [finding.reason, finding.count]))
  return { raw, out, report, findings, dataset: value(await openDataset(out)) }
}

const clip = 's05e02_seg02_clip_01'
const durations = { val: { s05e02_seg01_clip_00: [60.5, 1], s05e02_seg02_clip_00: [61.25, 2], [clip]: [59.25, 3] } }
/** A row as TVQA has it. */
const tvqa = (qid: number, changes: Record<string, unknown> = {}) =>
  row(qid, {
    answer: undefined,
    episode_name: undefined,
    occur_clip: undefined,
    answer_idx: 3,
    ts: '1.5-4',
    vid_name: clip,
    show_name: 'The Big Bang Theory',
    ...changes,
  })
const lines = (...rows: unknown[]) => rows.map((one) => JSON.stringify(one)).join('\n')

test('TVQA: clips in order with offsets, ts kept, episodeTs beside it, gold only in the gold part', async () => {
  const { out, dataset, report } = await open({
    'qa/tvqa_train.jsonl': lines(tvqa(1), tvqa(2, { answer_idx: 0, ts: '50-70' })),
    'qa/tvqa_test_public.jsonl': lines(tvqa(3, { answer_idx: undefined })),
    'tvr_video2dur_idx.json': durations,
  })
  expect([...dataset.episodes.values()]).toEqual([
    {
      id: 's05e02',
      show: 'bbt',
      clips: [
        { id: 's05e02_seg01_clip_00', index: 0, start: 0, end: 60.5, subtitles: [], source: { kind: 'none' } },
        { id: 's05e02_seg02_clip_00', index: 1, start: 60.5, end: 121.75, subtitles: [], source: { kind: 'none' } },
        { id: clip, index: 2, start: 121.75, end: 181, subtitles: [], source: { kind: 'none' } },
      ],
    },
  ])
  expect([...dataset.gold.values()]).toEqual([
    { qid: '1', answer: 3, clipId: clip, span: [1.5, 4], episodeSpan: [123.25, 125.75], kind: null },
    { qid: '2', answer: 0, clipId: clip, span: [50, 70], episodeSpan: [171.75, 181], kind: null },
  ])
  expect(dataset.questions[1]).toEqual({
    qid: '1',
    episodeId: 's05e02',
    text: 'Who opens the door in scene 1 ?',
    options: ['Penny .', 'Leonard .', 'Sheldon .', 'Raj .', 'Howard .'],
  })
  expect([...dataset.splitOf]).toEqual([
    ['3', 'test_public'],
    ['1', 'train'],
    ['2', 'train'],
  ])
  // the evidence of a question without an answer is kept for graders, apart
  expect(JSON.parse(readFileSync(join(out, 'gold/test_public.jsonl'), 'utf8'))).toEqual({
    qid: '3',
    answer: null,
    clip,
    ts: [1.5, 4],
    episodeTs: [123.25, 125.75],
  })
  const open_ = ['episodes.jsonl', 'questions/train.jsonl', 'questions/test_public.jsonl']
  const keys = open_.flatMap((name) => readFileSync(join(out, name), 'utf8').match(/"\w+":/g) ?? [])
  expect([...new Set(keys)].sort()).toEqual(
    ['id', 'show', 'clips', 'start', 'end', 'subtitles', 'source', 'kind', 'qid', 'episode', 'q', 'options']
      .map((key) => `"${key}":`)
      .sort(),
  )
  expect(report.splits.train).toMatchObject({ formats: ['TVQA'], questions: 2, answered: 2, spans: 2, boxes: 0 })
  expect(value(await openDataset(out, { split: 'TRAIN' })).questions).toHaveLength(2)
  expect(failure(await openDataset(out, { split: 'val' })).message).toMatch(
    /no split "val"; it has test_public \(1 questions\), train \(2 questions\)/,
  )
})

test('TVQA+: string answers, lists, boxes cut to the picture; refined rows win over those of TVQA', async () => {
  const box = (left: number, width: number, label: string, top = 10) => ({
    img_id: 5,
    top,
    left,
    width,
    height: 50,
    label,
  })
  const plus = row(1, {
    answer: undefined,
    episode_name: undefined,
    occur_clip: undefined,
    answer_idx: '2',
    vid_name: clip,
    ts: [2, 2],
    bbox: {
      '11': [],
      '5': [box(600, 41, 'Raj'), box(-3, 20, 'door'), box(0, 640, 'wall', 311)],
      '178': [box(700, 5, 'nothing'), { top: 1 }, box(1, 2, 'Raj')],
      '190': [box(1, 2, 'late')],
    },
  })
  const { out, dataset, report, findings } = await open({
    'a_tvqa_val.jsonl': lines(tvqa(1, { q: 'Who opens it?' }), tvqa(2)),
    'tvqa_plus_val.json': [plus],
    'dur.json': durations,
  })
  expect(report.inputs.map((input) => [input.kind, input.format, input.rows, input.kept])).toEqual([
    ['questions', 'TVQA+', 1, 1],
    ['questions', 'TVQA', 2, 1],
    ['durations', undefined, undefined, undefined],
  ])
  expect(dataset.gold.get('1')).toMatchObject({ answer: 2, span: [2, 2], episodeSpan: [123.75, 123.75] })
  expect(findings).toEqual({
    'row/qid-taken': 1,
    'span/zero-length': 1,
    'box/format': 1,
    'box/outside': 1,
    'box/cut': 3,
    // picture 190 is at 63 s, picture 178 at 59 s of 59.25
    'box/after-clip': 1,
  })
  const named = report.findings.find((finding) => finding.reason === 'row/qid-taken')?.examples
  expect(named).toEqual([
    {
      where: expect.stringMatching(/a_tvqa_val\.jsonl line 1 \(qid 1\)$/),
      detail: expect.stringMatching(/tvqa_plus_val\.json has it$/),
    },
  ])
  expect([...value(await openBoxes(out))]).toEqual([
    [
      '1',
      [
        {
          picture: 5,
          boxes: [
            { left: 600, top: 10, width: 40, height: 50, label: 'Raj' },
            { left: 0, top: 10, width: 17, height: 50, label: 'door' },
            { left: 0, top: 311, width: 640, height: 49, label: 'wall' },
          ],
        },
        { picture: 178, boxes: [{ left: 1, top: 10, width: 2, height: 50, label: 'Raj' }] },
        { picture: 190, boxes: [{ left: 1, top: 10, width: 2, height: 50, label: 'late' }] },
      ],
    ],
  ])
  expect(report.splits.val).toMatchObject({ questionsWithBoxes: 1, framesWithBoxes: 3, boxes: 5 })
})

test('LongTVQA: an array called .jsonl, shows with and without prefix, double episodes under their short names', async () => {
  const of = (qid: number, episode: string, named: string | undefined) =>
    row(qid, { occur_clip: `${episode}_seg02_clip_00`, episode_name: named })
  const shows = ['s01e02', 'friends_s01e02', 'met_s01e02', 'grey_s01e02', 'house_s01e02', 'castle_s01e02']
  const rows = [
    ...shows.map((episode, i) => of(i, episode, episode)),
    of(10, 'castle_s01e03', 's01e03'),
    of(11, 'friends_s06e24-25', 'friends_s06e24'),
    of(12, 'friends_s06e15-16', 's06e15-16'),
    of(13, 's01e04', 's01e05'),
  ]
  const { dataset, findings } = await open(
    {
      'LongTVQA_val.jsonl': rows,
      'LongTVQA_val_normalized.jsonl': rows.map((one) => ({ ...one, vid_name: one.occur_clip, answer_idx: '1' })),
      'LongTVQA_subtitles_clip_level.jsonl': {
        s01e02_seg02_clip_00: 'Raj : Hi . <eos> Bye .',
        s01e02_seg02_clip_01: '',
      },
      'LongTVQA_subtitles_episode_level.jsonl': {
        s01e02: '<seg02_clip_00>not used</seg02_clip_00><seg02_clip_01>Raj : From the episode .</seg02_clip_01>',
        met_s01e02: '<seg01_clip_00>Ted : Kids .</seg01_clip_00>',
      },
      'clip_bbox_mapping.json': { s01e02_seg02_clip_00: { '3': [[1, 2, 3, 4, 'Raj']] } },
    },
    { untimed: true },
  )
  expect([...dataset.episodes.values()].map(({ id, show, clips }) => [id, show, clips.length])).toEqual([
    ['s01e02', 'bbt', 2],
    ['castle_s01e02', 'castle', 1],
    ['castle_s01e03', 'castle', 1],
    ['friends_s01e02', 'friends', 1],
    ['friends_s06e15-16', 'friends', 1],
    ['friends_s06e24-25', 'friends', 1],
    ['grey_s01e02', 'grey', 1],
    ['house_s01e02', 'house', 1],
    ['met_s01e02', 'met', 2],
  ])
  // nine rows twice, and one that contradicts itself twice
  expect(findings).toEqual({ 'row/episode': 2, 'row/repeated': 9, 'clip/no-duration': 9, 'clip/questions-only': 7 })
  expect(dataset.episodes.get('s01e02')?.clips.map(({ subtitles }) => subtitles)).toEqual([
    [{ speaker: 'Raj', text: 'Hi .' }, { text: 'Bye .' }],
    [{ speaker: 'Raj', text: 'From the episode .' }],
  ])
  expect(dataset.gold.get('1')).toMatchObject({ span: [1.5, 4], episodeSpan: null })
})

test('dialogue: srt in ISO-8859-1 before preprocessed lines before clip text; broken files are counted and passed over', async () => {
  const srt = (text: string) => `1\n00:00:01,000 --> 00:00:02,000\n${text}\n`
  const id = (n: number) => `s05e02_seg02_clip_0${n}`
  const sub = (text: string) => [{ text, start: 1, end: 2 }]
  const { dataset, findings, report } = await open({
    'tvqa_val.jsonl': lines(tvqa(1, { vid_name: id(1) })),
    [`tvqa_subtitles/${id(0)}.srt`]: iconv.encode(srt('(UNKNAME:)Déjà vu.\n(Zoé:)Où ?'), 'iso-8859-1'),
    [`tvqa_subtitles/${id(1)}.srt`]: 'no cue in here',
    [`tvqa_subtitles/${id(2)}.srt`]: '',
    'tvqa_subtitles/credits.srt': srt('nobody'),
    'tvqa_preprocessed_subtitles.jsonl': lines(
      { vid_name: id(0), sub: sub('not used') },
      { vid_name: id(1), sub: sub(' Penny : Hello .') },
      { vid_name: id(2), sub: [] },
      { vid_name: 'elsewhere', sub: [] },
      { vid_name: id(1), sub: [] },
    ),
    'clips.json': { [id(1)]: 'not used', [id(2)]: 'Raj : Hi .' },
    'dur.json': { val: { [id(0)]: [60, 0], [id(1)]: [60, 1], [id(2)]: [60, 2] } },
  })
  expect(dataset.episodes.get('s05e02')?.clips.map((one) => one.subtitles)).toEqual([
    [
      { text: 'Déjà vu.', start: 1, end: 2 },
      { speaker: 'Zoé', text: 'Où ?', start: 1, end: 2 },
    ],
    [{ speaker: 'Penny', text: 'Hello .', start: 1, end: 2 }],
    [{ speaker: 'Raj', text: 'Hi .' }],
  ])
  expect(findings).toEqual({ 'clip/name': 1, 'text/twice': 1, 'srt/latin': 1, 'srt/format': 1, 'srt/empty': 1 })
  expect(report.unused).toEqual([
    { path: expect.stringMatching(/credits\.srt$/), why: 'a subtitle file whose name is no clip name' },
  ])
})

test('pictures stay where they are: folders are counted, videos probed, an episode video serves its clips', async () => {
  const picture = (of: string, n: number) => [`bbt_frames/${of}/${String(n).padStart(5, '0')}.jpg`, 'x']
  const frames = [1, 2, 3, 4, 6, 9].map((n) => picture('s05e02_seg01_clip_00', n))
  const { raw, out, dataset, findings } = await open({
    'tvqa_val.jsonl': lines(
      tvqa(1),
      tvqa(2, { vid_name: 's05e03_seg01_clip_00' }),
      tvqa(3, { vid_name: 's05e04_seg01_clip_00' }),
    ),
    ...Object.fromEntries([...frames, ['bbt_frames/s05e02_seg02_clip_00/readme.txt', 'x']]),
    'videos/s05e02_seg02_clip_00.mp4': 'x'.repeat(61),
    [`videos/${clip}.mp4`]: '',
    'videos/s05e03.mkv': 'x'.repeat(100),
    'videos/s05e04.mkv': 'x'.repeat(90),
    'videos/trailer.mp4': 'x',
    'dur.json': {
      val: {
        s05e02_seg02_clip_00: [70, 1],
        [clip]: [59.25, 2],
        s05e03_seg01_clip_00: [60, 3],
        s05e03_seg01_clip_01: [41, 4],
        s05e04_seg01_clip_00: [60, 5],
      },
    },
    'visual_descriptions.json': { [clip]: [{ start: 0, end: 3, text: ' A door opens. ' }] },
  })
  // 9 pictures at 3 per second are 3 s: no table has that clip
  expect(dataset.episodes.get('s05e02')?.clips.map(({ start, end, source }) => [start, end, source])).toEqual([
    [0, 3, { kind: 'frames', directory: `${raw}/bbt_frames/s05e02_seg01_clip_00`, fps: 3, count: 9 }],
    [3, 73, { kind: 'video', path: `${raw}/videos/s05e02_seg02_clip_00.mp4`, offset: 0, duration: 61 }],
    [73, 132.25, { kind: 'descriptions', lines: [{ start: 0, end: 3, text: 'A door opens.' }] }],
  ])
  expect(dataset.episodes.get('s05e03')?.clips.map((one) => one.source)).toEqual([
    { kind: 'video', path: `${raw}/videos/s05e03.mkv`, offset: 0, duration: 60 },
    { kind: 'video', path: `${raw}/videos/s05e03.mkv`, offset: 60, duration: 41 },
  ])
  // 90 s of video do not belong to a clip of 60 s
  expect(dataset.episodes.get('s05e04')?.clips[0]?.source).toEqual({ kind: 'none' })
  expect(findings).toEqual({ 'frames/none': 1, 'frames/gap': 1, 'video/unreadable': 1, 'video/length': 2 })
  expect(readFileSync(join(out, 'episodes.jsonl'), 'utf8')).not.toContain(raw) // paths are relative
})

test('every oddity in many rows, in lines and in an array: what is kept and what is counted', async () => {
  for (const form of ['lines', 'array'] as const) {
    const raw = folder()
    const generated = await generateTvqa(raw, { episodes: 12, clips: 290, questions: 3_000 }, form)
    const out = join(folder(), 'out')
    const { report } = value(await importDataset({ ...importOptions.parse({ inputs: [raw], out }), probe }))
    const counted = Object.fromEntries(report.findings.map((finding) => [finding.reason, finding.count]))
    expect(counted).toEqual(generated.findings)
    expect(report.splits.train?.questions).toBe(generated.kept)
    expect(report.episodes).toEqual({ written: 12, timed: 12, clips: 290 })
    for (const { reason, examples } of report.findings) {
      expect(examples.length).toBeGreaterThan(0)
      const place = form === 'lines' ? /tvqa_train\.jsonl line \d+/ : /tvqa_train\.jsonl row \d+/
      for (const { where } of examples) expect(where, reason).toMatch(place)
    }
    const dataset = value(await openDataset(out))
    expect(dataset.questions).toHaveLength(generated.kept)
    const clips = new Map([...dataset.episodes.values()].flatMap((one) => one.clips.map((clip) => [clip.id, clip])))
    for (const { clipId, episodeSpan } of dataset.gold.values()) {
      if (!episodeSpan) continue
      const owner = clips.get(clipId ?? '')
      expect(episodeSpan[0]).toBeGreaterThanOrEqual(owner?.start as number)
      expect(episodeSpan[1]).toBeLessThanOrEqual(owner?.end as number)
    }
  }
})

test('a second import of the same files does nothing; of other files it leaves the folder alone', async () => {
  const { raw, out, imported } = await run({ 'tvqa_val.jsonl': lines(tvqa(1)), 'dur.json': durations })
  const options = { ...importOptions.parse({ inputs: [raw], out }), probe }
  const before = statSync(join(out, 'episodes.jsonl')).mtimeMs
  const again = value(await importDataset(options))
  expect(again).toEqual({ written: false, report: value(imported).report })
  expect(statSync(join(out, 'episodes.jsonl')).mtimeMs).toBe(before)
  expect(readdirSync(out).sort()).toEqual(['dataset.json', 'episodes.jsonl', 'gold', 'import-report.json', 'questions'])

  writeFileSync(join(raw, 'tvqa_val.jsonl'), lines(tvqa(1), tvqa(2)))
  expect(failure(await importDataset(options)).message).toMatch(/holds a data set imported from other inputs/)
  mkdirSync(join(raw, 'mine'))
  writeFileSync(join(raw, 'mine/notes.txt'), 'x')
  expect(failure(await importDataset({ ...options, out: join(raw, 'mine') })).message).toMatch(
    /is not empty \(notes\.txt\)/,
  )
})

test('cancelled: says so, is unfinished for others, and goes on', async () => {
  const raw = folder({ 'tvqa_val.jsonl': lines(tvqa(1)), 'dur.json': durations })
  const out = join(folder(), 'out')
  const options = { ...importOptions.parse({ inputs: [raw], out }), probe }
  const stop = new AbortController()
  const progress = {
    stage: (name: string) => void (/^writing episodes/.test(name) && stop.abort()),
    to: () => undefined,
  }
  const stopped = failure(await importDataset({ ...options, progress, signal: stop.signal }))
  expect(stopped).toMatchObject({ kind: 'cancelled', message: expect.stringContaining('run the same command again') })
  expect(failure(await openDataset(out)).message).toContain('this import is unfinished')
  expect(existsSync(join(out, 'episodes.jsonl'))).toBe(false)
  expect(value(await importDataset(options)).written).toBe(true)
})

const questions = { 'tvqa_val.jsonl': lines(tvqa(1)) }
const mistakes: [string, Record<string, unknown>, Partial<ImportArguments>, string, RegExp][] = [
  [
    'no questions',
    { 'tvr_video2dur_idx.json': durations, 'notes.json': { a: 1 } },
    {},
    'missing_file',
    /no questions among the inputs: .*found durations \(.*tvr_video2dur_idx\.json\); not read, for one: .*notes\.json \(not a kind of file that import reads: an object with "a"\)/,
  ],
  [
    'no durations',
    questions,
    {},
    'missing_file',
    /no durations among the inputs: expected TVR's tvr_video2dur_idx\.json, .* found questions \(.*\); add one, or pass --untimed/,
  ],
  [
    'durations of other episodes',
    { ...questions, 'dur.json': { val: { friends_s01e01_seg01_clip_00: [60, 0] } } },
    {},
    'bad_file',
    /durations of 1 clips were found, but in none of the 1 episodes .*first without: s05e02_seg02_clip_01/,
  ],
  [
    'questions of another kind',
    { 'mc_val.jsonl': lines({ qid: 1, q: 'Why?', a0: 'yes', a1: 'no' }), 'dur.json': durations },
    {},
    'bad_file',
    /mc_val\.jsonl: none of its 1 rows is a usable question.*line 1 \(qid 1\): expected occur_clip, vid_name/,
  ],
  [
    'a download cut short',
    { 'tvqa_val.jsonl': `${lines(tvqa(1))}\n${lines(tvqa(2)).slice(0, 40)}`, 'dur.json': durations },
    {},
    'bad_file',
    /tvqa_val\.jsonl: not JSON at line 2, column \d+/,
  ],
  [
    'a word too many',
    questions,
    { as: ['subtitles=x.json'] },
    'bad_request',
    /--as subtitles=x\.json: expected KIND=FILE/,
  ],
  ['a split of what has none', questions, { as: ['durations:val=x'] }, 'bad_request', /only questions have a split/],
  [
    'a file that is not there',
    questions,
    { inputs: ['/nowhere/x.json'] },
    'missing_file',
    /\/nowhere\/x\.json: no such file/,
  ],
]
test.each(mistakes)('%s is named', async (_, files, options, kind, message) => {
  const failed = failure((await run(files, options)).imported)
  expect(failed).toMatchObject({ boundary: 'dataset', kind })
  expect(failed.message).toMatch(message)
  expect(failed.message).not.toContain('\n')
})

test('a file named by the user must be something; --as says what a file is and which split', async () => {
  const raw = folder({
    'rows.txt': lines(tvqa(1)),
    'table.json': { [clip]: '59.25' },
    'dur.json': durations,
    'archive.tar.gz': 'x',
  })
  const to = () => join(folder(), 'out')
  const call = (inputs: string[], as: string[] = []) =>
    importDataset({ ...importOptions.parse({ inputs: inputs.map((name) => join(raw, name)), out: to(), as }), probe })
  expect(failure(await call(['table.json', 'rows.txt'])).message).toMatch(/durations among the inputs/)
  writeFileSync(join(raw, 'other.json'), '{"a": 1}')
  expect(failure(await call(['other.json', 'rows.txt'])).message).toMatch(
    /other\.json: holds an object with "a"; expected one of questions \(rows with qid, q, a0\.\.a4\), .*--as KIND=/,
  )
  expect(failure(await call(['archive.tar.gz'])).message).toMatch(/archive; unpack it/)
  expect(failure(await call(['../nothing'])).kind).toBe('missing_file')
  const named = value(await call(['dur.json'], [`questions:val=${join(raw, 'rows.txt')}`])).report
  expect(named.splits.val?.questions).toBe(1)
  // a table taken for durations by force: its entries are counted, not believed
  const forced = value(await call(['dur.json', 'rows.txt'], [`durations=${join(raw, 'table.json')}`])).report
  expect(forced.findings).toMatchObject([{ reason: 'duration/format', count: 1 }])
})

test('the command probes real videos and prints what it did; inspect tells lengths and what is here of what was published', async () => {
  const raw = folder({ 'tvqa_val.jsonl': lines(tvqa(1), tvqa(2, { ts: 'nan-nan' })) })
  const path = join(raw, `${clip}.mp4`)
  const grey = Array.from({ length: 24 }, () => new Uint8Array(64 * 48 * 3).fill(128))
  value(await encodeVideo(grey.values(), { width: 64, height: 48, fps: 8, path }))
  const out = join(folder(), 'out')
  const printed: string[] = []
  const call = (json: boolean) =>
    runImport({
      options: { inputs: [raw], out },
      json,
      progress: createProgress(new PassThrough()),
      signal: new AbortController().signal,
      print: (text) => printed.push(text),
    })
  value(await call(false))
  value(await call(true))
  expect(printed[0]).toMatch(
    /tvqa_val\.jsonl: TVQA questions \(val\), 2 of 2 rows kept\n {2}1 videos\nWritten\n {2}1 episodes with 1 clips, 1 episodes with a timeline\n {2}val: 2 questions, 2 with an answer, 1 with a time span\nDropped\n +1 {2}time spans that are no numbers.*\n +.*line 2 \(qid 2\): ts "nan-nan"/,
  )
  expect(JSON.parse(printed[1] as string)).toEqual(JSON.parse(readFileSync(join(out, 'import-report.json'), 'utf8')))
  const report = value(await inspectDataset(out))
  expect(report).toMatchObject({
    spans: 1,
    boxes: { questions: 0, pictures: 0, boxes: 0 },
    lengths: { episodes: 1, clips: 1, segments: 1, segmentsWithGaps: 0, segmentsNotFromZero: 1, clipsOver60Seconds: 0 },
    pictures: { video: 1, missing: 0, missingVideos: [] },
    leaks: { goldKeysInTasks: [] },
  })
  expect(report.lengths?.clipSeconds.mean).toBeCloseTo(3, 1)
  expect(report.published).toEqual([
    { what: 'TVQA questions of val', here: 2, published: 15_253 },
    { what: 'bbt episodes', here: 1, published: 220 },
    { what: 'bbt clips', here: 1, published: 4_198 },
  ])
  expect(formatReport(report)).toMatch(/Of what was published\n {2}TVQA questions of val: 2 of 15253/)
})

test('a damaged data set is named when it is opened', async () => {
  const { out } = await open({ 'tvqa_val.jsonl': lines(tvqa(1)), 'dur.json': durations })
  const marker = readFileSync(join(out, 'dataset.json'), 'utf8')
  writeFileSync(join(out, 'dataset.json'), marker.replace('"version": 1', '"version": 99'))
  expect(failure(await openDataset(out)).message).toMatch(/layout version 99, expected 1; import the data set again/)
  writeFileSync(join(out, 'dataset.json'), marker)
  writeFileSync(join(out, 'episodes.jsonl'), '{"id": "s05e0')
  expect(failure(await openDataset(out)).message).toMatch(/episodes\.jsonl: not JSON at line 1/)
  writeFileSync(join(out, 'episodes.jsonl'), '{"id": "s01e01", "show": "bbt", "clips": []}')
  expect(failure(await openDataset(out)).message).toMatch(/episodes\.jsonl: lacks episode s05e02 of question 1/)
})
