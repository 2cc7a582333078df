/**
 * `showrunner view`: opens a run's files, and what belongs to them where it is at hand (data set, tokenizer, configuration), behind
 * the pages of view/. Runs until it is told to stop.
 */
import type { AddressInfo } from 'node:net'
import { userInfo } from 'node:os'
import { loadCheckpoint } from './checkpoint/checkpoint.ts'
import { type Dataset, openDataset } from './dataset/index.ts'
import { openTokenizer } from './policy/tokenizer.ts'
import type { Progress } from './progress.ts'
import { type RecordedConfig, recordedConfig } from './runFolder.ts'
import { type KeyedQuestion, readAnswerKey } from './trajectory/answerKey.ts'
import type { Gold, Result } from './types.ts'
import { isUnchanged, openFrameReader, seenAsPng, videoOptions } from './video/index.ts'
import type { ViewOptions } from './view/options.ts'
import { openRunIndex } from './view/runIndex.ts'
import { createViewer } from './view/server.ts'
import type { ViewSources } from './view/sources.ts'

export interface ViewRequest extends ViewOptions {
  directory: string
  /** Folders of data sets, for runs without an answer key; none: those of the run's configuration. */
  datasets: readonly string[]
}

export interface OpenViewer {
  url: string
  close(): Promise<void>
}

export async function openViewer(
  { directory, datasets, port, ...options }: ViewRequest,
  progress: Progress,
): Promise<Result<OpenViewer>> {
  const index = await openRunIndex(directory)
  if (!index.ok) return index
  const config = await recordedConfig(directory)
  const sources = await openSources(directory, datasets, config, progress)
  if (!sources.ok) return sources
  const server = createViewer(index.value, sources.value, options)
  try {
    await server.listen({ host: '127.0.0.1', port })
  } catch (error) {
    await server.close()
    const message = `http://127.0.0.1:${port}: cannot listen there: ${(error as Error).message}; give another --port, or none`
    return { ok: false, failure: { boundary: 'serve', kind: 'bad_request', message } }
  }
  const { port: listening } = server.addresses()[0] as AddressInfo
  progress.stage('reading the run', 100)
  // pages are there at once and show what was read so far
  void index.value
    .refresh(({ read, size }) => progress.to(size === 0 ? 100 : Math.floor((100 * read) / size)))
    .then(() => progress.done(`${index.value.columns.length.toLocaleString('en-US')} trajectories`))
  return { ok: true, value: { url: `http://127.0.0.1:${listening}`, close: () => server.close() } }
}

async function openSources(
  directory: string,
  datasets: readonly string[],
  config: RecordedConfig | null,
  progress: Progress,
): Promise<Result<ViewSources>> {
  const key = await readAnswerKey(directory)
  if (!key.ok) return key
  const opened: Dataset[] = []
  // runs of earlier versions have no answer key: their data sets know the same
  for (const path of datasets.length > 0 || key.value !== null ? datasets : (config?.datasets ?? [])) {
    const dataset = await openDataset(path)
    if (dataset.ok) opened.push(dataset.value)
    // one that was asked for has to be there; one that the run was made from may be gone
    else if (datasets.length > 0) return dataset
    else progress.line(`${dataset.failure.message}; pages have no clips and no gold of it`)
  }
  const frames = openFrameReader(videoOptions.parse({}))
  return {
    ok: true,
    value: {
      clips: (id) => key.value?.episodes[id] ?? firstOf(opened, ({ episodes }) => episodes.get(id)?.clips),
      gold: (qid) => key.value?.questions[qid] ?? firstOf(opened, ({ gold }) => keyed(gold.get(qid))),
      async picture(seen) {
        const png = await seenAsPng(frames, seen)
        return png.ok ? { ok: true, value: { bytes: png.value, type: 'image/png' } } : png
      },
      unchanged: isUnchanged,
      tokens: await openTokens(config),
      plannedSteps: config?.steps ?? null,
      report: async () => (await import('./report/write.ts')).writeReport(directory),
      labeller: userInfo().username,
    },
  }
}

function firstOf<Found>(datasets: readonly Dataset[], find: (dataset: Dataset) => Found | undefined): Found | null {
  for (const dataset of datasets) {
    const found = find(dataset)
    if (found !== undefined) return found
  }
  return null
}

function keyed(gold: Gold | undefined): KeyedQuestion | undefined {
  return gold && { ...gold, span: gold.span && [...gold.span] }
}

/** The tokenizer of the policy that the run began with. */
async function openTokens(config: RecordedConfig | null): Promise<ViewSources['tokens']> {
  const none = (message: string): ViewSources['tokens'] => ({
    ok: false,
    failure: { boundary: 'checkpoint', kind: 'missing_file', message },
  })
  if (config === null) return none('Without the configuration of the run its tokenizer is not known: ids are shown.')
  if (config.policy === null) return none('The policy was not a checkpoint here: ids are shown.')
  const checkpoint = await loadCheckpoint(config.policy)
  if (!checkpoint.ok) return checkpoint
  const tokenizer = openTokenizer(checkpoint.value, config.policy)
  if (!tokenizer.ok) return tokenizer
  const texts = new Map<number, string>()
  const textOf = (id: number): string => {
    const text = texts.get(id) ?? tokenizer.value.decode([id])
    texts.set(id, text)
    return text
  }
  return { ok: true, value: (ids) => ids.map(textOf) }
}
