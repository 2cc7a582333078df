/**
 * What decides which trajectories come out, by content: stored ones may be taken up again only where this is the same. A base master
 * made again in place, or a question file that was corrected, is another content under the same path. Runs nothing.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { RunConfig } from './config.ts'
import { configHash } from './configFile.ts'
import type { Dataset } from './dataset/index.ts'
import type { Result } from './types.ts'

export interface Contents {
  /** Of the files of the master and of frozen roles; of an endpoint its model name, since its weights cannot be seen. */
  policy: string
  /** Of questions, gold and episodes; of videos their size. */
  questions: string
}

/**
 * Names the trajectories that come out of a configuration with these contents. Paths, limits on time, retries, prices and concurrency
 * do not enter, so a run may be resumed with others, for example after an endpoint was overloaded.
 */
export function samplingHash(config: RunConfig, contents: Contents): string {
  const { seed, policy, system, roles, agents, reward, rollout, engine } = config
  const { groupSize, temperature, budget } = rollout
  const master = policy.type === 'checkpoint' ? { type: policy.type, frozenType: policy.frozenType } : policy
  return configHash(
    withoutOperation({
      seed,
      contents,
      master,
      engine: engine.type,
      system,
      ...(Object.keys(roles).length === 0 ? {} : { roles: withoutPaths(roles) }),
      agents,
      reward,
      groupSize,
      temperature,
      budget,
    }),
  )
}

/** Keys that say how something runs and not what comes out. */
const OPERATION: ReadonlySet<string> = new Set([
  'apiKeyEnv',
  'attemptSeconds',
  'baseUrl',
  'cacheDirectory',
  'completionUsdPerMillion',
  'concurrency',
  'deadlineSeconds',
  'maxTokensField',
  'promptUsdPerMillion',
  'replay',
  'retries',
  'returnTokenIds',
  'threads',
])

function withoutOperation(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutOperation)
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, item]) => (OPERATION.has(key) ? [] : [[key, withoutOperation(item)]])),
  )
}

/** Files of a checkpoint that its answers do not depend on. */
const NOT_SAMPLED_FROM = /^(training_state\.json|optimizer\.safetensors|.*\.partial)$/

/** The roles without where their models lie. */
function withoutPaths(roles: RunConfig['roles']): unknown {
  return Object.fromEntries(
    Object.entries(roles).map(([role, one]) => [role, { ...one, path: null, adapter: null }] as const),
  )
}

/** The content of the policy and of all frozen roles. Fails when a checkpoint's directory or a script cannot be read. */
export async function policyContent({ policy, roles }: Pick<RunConfig, 'policy' | 'roles'>): Promise<Result<string>> {
  const contents: string[] = []
  for (const one of [policy, ...Object.values(roles)]) {
    const content = await modelContent(one)
    if (!content.ok) return content
    contents.push(content.value)
  }
  return { ok: true, value: contents.join(' ') }
}

async function modelContent(policy: RunConfig['policy'] | RunConfig['roles'][string]): Promise<Result<string>> {
  if (policy.type === 'endpoint') return { ok: true, value: policy.model }
  if (policy.type === 'scripted') return fileContent(policy.path)
  const own = await directoryContent(policy.path)
  if (!own.ok || policy.adapter === null) return own
  const adapter = await directoryContent(policy.adapter)
  return adapter.ok ? { ok: true, value: `${own.value} ${adapter.value}` } : adapter
}

async function fileContent(path: string): Promise<Result<string>> {
  try {
    return {
      ok: true,
      value: createHash('sha256')
        .update(await readFile(path))
        .digest('hex'),
    }
  } catch (error) {
    const message = `${path} cannot be read: ${(error as Error).message}; check the path`
    return { ok: false, failure: { boundary: 'policy', kind: 'missing_file', message } }
  }
}

async function directoryContent(directory: string): Promise<Result<string>> {
  const hash = createHash('sha256')
  try {
    for (const file of (await readdir(directory, { withFileTypes: true })).sort((a, b) => (a.name < b.name ? -1 : 1))) {
      if (!file.isFile() || NOT_SAMPLED_FROM.test(file.name)) continue
      hash.update(`\0${file.name}\0`)
      for await (const chunk of createReadStream(join(directory, file.name))) hash.update(chunk as Buffer)
    }
    const base = await adapterBase(directory)
    if (base !== null) {
      const content = await directoryContent(base)
      if (!content.ok) return content
      hash.update(content.value)
    }
    return { ok: true, value: hash.digest('hex') }
  } catch (error) {
    const message = `checkpoint ${directory} cannot be read: ${(error as Error).message}; check the path`
    return { ok: false, failure: { boundary: 'checkpoint', kind: 'missing_file', message } }
  }
}

/** The directory of the base that a PEFT adapter names, from the working directory or from the adapter's own; null where there is none. */
async function adapterBase(directory: string): Promise<string | null> {
  const text = await readFile(join(directory, 'adapter_config.json'), 'utf8').catch(() => null)
  const base =
    text === null ? null : (JSON.parse(text) as { base_model_name_or_path?: unknown }).base_model_name_or_path
  if (typeof base !== 'string') return null
  for (const path of [base, join(directory, base)]) if ((await stat(path).catch(() => null))?.isDirectory()) return path
  return null
}

/** The content of a data set: every question with its answer, and what agents can see of every episode; of videos the size alone. */
export async function questionsContent({ episodes, questions, gold }: Dataset): Promise<string> {
  const hash = createHash('sha256')
  const sizes = new Map<string, Promise<number>>()
  const sizeOf = (path: string): Promise<number> => {
    const known =
      sizes.get(path) ??
      stat(path).then(
        ({ size }) => size,
        () => -1,
      )
    sizes.set(path, known)
    return known
  }
  for (const { id, clips } of episodes.values()) {
    for (const { id: clip, start, end, subtitles, source } of clips) {
      const pictures =
        source.kind === 'video'
          ? { ...source, path: await sizeOf(source.path) }
          : source.kind === 'frames'
            ? { ...source, directory: null }
            : source
      hash.update(JSON.stringify([id, clip, start, end, subtitles, pictures]))
    }
  }
  for (const question of questions) hash.update(JSON.stringify([question, gold.get(question.qid) ?? null]))
  return hash.digest('hex')
}
