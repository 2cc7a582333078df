/**
 * `showrunner view`: finds the stores of a run's folder and what belongs to them where it is at hand (data set, tokenizer,
 * configuration), and puts the pages of view/ in front of them. Runs until it is told to stop.
 */
import type { AddressInfo } from 'node:net'
import { userInfo } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { loadCheckpoint } from './checkpoint/checkpoint.ts'
import { type Dataset, openDataset } from './dataset/index.ts'
import { openTokenizer } from './policy/tokenizer.ts'
import type { Progress } from './progress.ts'
import { cellLabel } from './report/sweep.ts'
import { readSweep } from './report/write.ts'
import { type RecordedConfig, recordedConfig } from './runFolder.ts'
import { type KeyedQuestion, readAnswerKey } from './trajectory/answerKey.ts'
import { findStores, VIEWER_PORT } from './trajectory/stores.ts'
import type { Gold, Result } from './types.ts'
import { isUnchanged, openFrameReader, seenAsPng, videoOptions } from './video/index.ts'
import type { ViewOptions } from './view/options.ts'
import { openRunIndex } from './view/runIndex.ts'
import { createViewer } from './view/server.ts'
import type { ViewedFolder, ViewSources } from './view/sources.ts'

export interface ViewRequest extends ViewOptions {
  directory: string
  /** Folders of data sets, for runs without an answer key; none: those of the run's configuration. */
  datasets: readonly string[]
}

export interface OpenViewer {
  url: string
  close(): Promise<void>
}

/** Fails when the folder has no trajectories in or below it, or the port is taken. */
export async function openViewer(
  { directory, datasets, port, ...options }: ViewRequest,
  progress: Progress,
): Promise<Result<OpenViewer>> {
  const stores = await findStores(directory)
  if (stores.length === 0) return nothingStored(directory)
  const server = createViewer(folderOf(directory, datasets, progress), options)
  const listening = await listen(server, port)
  if (!listening.ok) return listening
  const { port: taken } = server.addresses()[0] as AddressInfo
  // pages are there at once and show what was read so far
  void readAll(server, progress)
  return { ok: true, value: { url: `http://127.0.0.1:${taken}`, close: () => server.close() } }
}

function nothingStored(directory: string): Result<OpenViewer> {
  const message = `${directory}: expected trajectories.arrows, or .partial, in or below it and found none; give the folder of a run, such as rollouts/quickstart`
  return { ok: false, failure: { boundary: 'store', kind: 'missing_file', message } }
}

/** At the port of links in reports, or at a free one where that is taken; at `port` where it is given. */
async function listen(server: ReturnType<typeof createViewer>, port: number | null): Promise<Result<void>> {
  try {
    await server.listen({ host: '127.0.0.1', port: port ?? VIEWER_PORT })
    return { ok: true, value: undefined }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (port === null && code === 'EADDRINUSE') return listen(server, 0)
    await server.close()
    const said = `http://127.0.0.1:${port ?? VIEWER_PORT}: cannot listen there: ${message}; give another --port`
    return { ok: false, failure: { boundary: 'serve', kind: 'bad_request', message: said } }
  }
}

/** Reads all stores once, so that lists and links are there when somebody asks; one that cannot be read is told and passed over. */
async function readAll(server: ReturnType<typeof createViewer>, progress: Progress): Promise<void> {
  const stores = await server.openStores((trouble) => progress.line(trouble))
  progress.stage('reading the run', 100)
  let trajectories = 0
  for (const [at, store] of stores.entries()) {
    const { trajectories: held } = await store.read((share) =>
      progress.to(Math.floor((100 * (at + share)) / stores.length)),
    )
    trajectories += held
  }
  progress.to(100)
  progress.done(
    `${trajectories.toLocaleString('en-US')} trajectories${stores.length > 1 ? ` in ${stores.length} stores` : ''}`,
  )
}

function folderOf(directory: string, datasets: readonly string[], progress: Progress): ViewedFolder {
  const name = basename(resolve(directory))
  return {
    name,
    async stores() {
      const paths = await findStores(directory)
      const sweep = await readSweep(directory)
      if (!sweep?.ok) return paths.map((path) => ({ path, label: path || name }))
      // cells in the order of their comparison, after what else there is
      const named = paths.map((path) => {
        const place = sweep.value.cells.findIndex((cell) => resolve(cell.directory) === resolve(path))
        const cell = sweep.value.cells[place]
        return { path, place, label: cell ? cellLabel(cell.settings, sweep.value) : path || name }
      })
      return named.sort((a, b) => a.place - b.place).map(({ path, label }) => ({ path, label }))
    },
    async open(path) {
      const store = join(directory, path)
      const index = await openRunIndex(store)
      if (!index.ok) return index
      const sources = await openSources(store, datasets, progress)
      return sources.ok ? { ok: true, value: { index: index.value, sources: sources.value } } : sources
    },
    report: async () => (await import('./report/write.ts')).writeReport(directory),
  }
}

async function openSources(
  directory: string,
  datasets: readonly string[],
  progress: Progress,
): Promise<Result<ViewSources>> {
  const config = await recordedConfig(directory)
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
  let tokens: ReturnType<ViewSources['tokens']> | null = null
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
      tokens() {
        tokens ??= openTokens(config)
        return tokens
      },
      plannedSteps: config?.steps ?? null,
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
async function openTokens(config: RecordedConfig | null): ReturnType<ViewSources['tokens']> {
  const none = (message: string): Awaited<ReturnType<ViewSources['tokens']>> => ({
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
