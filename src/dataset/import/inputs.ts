/**
 * What the given files and folders hold: JSON files by content, subtitle files, frame folders and videos by name. Lists and sniffs; reads
 * nothing whole.
 */
import type { Dirent } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { basename, dirname, extname, join, resolve } from 'node:path'
import type { Result } from '../../types.ts'
import { failed, fileFailure } from '../failure.ts'
import { MARKER, WORK_FOLDER } from '../layout.ts'
import { parseClipName, parseEpisodeName } from '../names.ts'
import { splitOf } from '../rows.ts'
import type { JsonForm } from '../stream.ts'
import { type Detected, detect, KINDS, type Kind, type QuestionFormat } from './detect.ts'

export interface InputFile {
  path: string
  kind: Kind
  form: JsonForm
  /** Of questions; null else. */
  split: string | null
  format: QuestionFormat | null
  bytes: number
  modified: number
}

export interface Inputs {
  /** In order of path; questions in the order in which they are read, see `formatOrder`. */
  files: InputFile[]
  /** By clip: the `.srt` file, the folder of pictures, the video. */
  srt: Map<string, string>
  frames: Map<string, string>
  clipVideos: Map<string, string>
  /** By episode. */
  episodeVideos: Map<string, string>
  /** What was found and is not read. */
  unused: { path: string; why: string }[]
}

/** `--as kind[:split]=path`, parsed: what a file is, where its content does not tell or tells wrong. */
export interface Override {
  path: string
  kind: Kind
  split: string | null
}

const VIDEO = /\.(mp4|mkv|webm|mov|avi|m4v)$/i
const ARCHIVE = /\.(tar|tgz|gz|zip|7z)$/i
/** Clip folders lie at most so deep under a given folder. */
const DEPTH = 5
/** Layouts with boxes and refined spans come first: their rows win over the same qids in the layouts they refine. */
const formatOrder: readonly (QuestionFormat | null)[] = ['TVQA+', 'LongTVQA+', 'LongTVQA', 'TVQA', null]

/** Parses `--as`. Fails with what was wrong with it. */
export function readOverride(words: string): Result<Override> {
  const match = /^([a-z-]+)(?::([a-z][a-z_]*))?=(.+)$/.exec(words)
  const kind = match?.[1]
  if (!match || kind === undefined || !(kind in KINDS)) {
    return failed(
      'bad_request',
      `--as ${words}: expected KIND=FILE or questions:SPLIT=FILE, KIND one of ${Object.keys(KINDS).join(', ')}`,
    )
  }
  if (match[2] !== undefined && kind !== 'questions')
    return failed('bad_request', `--as ${words}: only questions have a split; write ${kind}=${match[3]}`)
  return { ok: true, value: { kind: kind as Kind, split: match[2] ?? null, path: match[3] as string } }
}

/**
 * Looks through `given` and the files of `overrides`; folders that hold an imported data set, and `out`, are passed over.
 * Fails with `missing_file`, or `bad_file` for a JSON file named by the user that is nothing import knows.
 */
export async function findInputs(
  given: readonly string[],
  overrides: readonly Override[],
  out: string,
): Promise<Result<Inputs>> {
  const found: Inputs = {
    files: [],
    srt: new Map(),
    frames: new Map(),
    clipVideos: new Map(),
    episodeVideos: new Map(),
    unused: [],
  }
  const stated = new Map(overrides.map((override) => [resolve(override.path), override]))
  const seen = new Set<string>()
  const add = async (path: string, named: boolean): Promise<Result<void>> => {
    if (seen.has(resolve(path))) return OK
    seen.add(resolve(path))
    return addFile(path, named, stated.get(resolve(path)) ?? null, found)
  }
  const walk = async (directory: string, depth: number): Promise<Result<void>> => {
    if (resolve(directory) === resolve(out)) return OK
    let entries: Dirent[]
    try {
      entries = (await readdir(directory, { withFileTypes: true })).sort((a, b) => (a.name < b.name ? -1 : 1))
    } catch (error) {
      return fileFailure(directory, error)
    }
    if (entries.some(({ name }) => name === MARKER || name === WORK_FOLDER)) {
      found.unused.push({ path: directory, why: 'a data set of Showrunner; open it as it is' })
      return OK
    }
    for (const entry of entries) {
      const path = join(directory, entry.name)
      const folder =
        entry.isDirectory() || (entry.isSymbolicLink() && (await stat(path).catch(() => null))?.isDirectory())
      if (folder && parseClipName(entry.name)) addOnce(found.frames, entry.name, path, found)
      else if (folder && depth < DEPTH) {
        const walked = await walk(path, depth + 1)
        if (!walked.ok) return walked
      } else if (!folder) {
        const added = await add(path, false)
        if (!added.ok) return added
      }
    }
    return OK
  }
  for (const path of [...given, ...overrides.map((override) => override.path)]) {
    let folder: boolean
    try {
      folder = (await stat(path)).isDirectory()
    } catch (error) {
      return fileFailure(path, error)
    }
    const clip = parseClipName(basename(resolve(path)))?.id
    if (folder && clip !== undefined) addOnce(found.frames, clip, path, found)
    else {
      const taken = folder ? await walk(path, 0) : await add(path, true)
      if (!taken.ok) return taken
    }
  }
  found.files.sort(
    (a, b) =>
      formatOrder.indexOf(a.format) - formatOrder.indexOf(b.format) || (a.path < b.path ? -1 : a.path > b.path ? 1 : 0),
  )
  return { ok: true, value: found }
}

const OK: Result<void> = { ok: true, value: undefined }

async function addFile(path: string, named: boolean, stated: Override | null, found: Inputs): Promise<Result<void>> {
  const name = basename(path)
  const stem = name.slice(0, name.length - extname(name).length)
  if (!stated) {
    if (/\.srt$/i.test(name)) {
      if (parseClipName(stem)) addOnce(found.srt, stem, path, found)
      else found.unused.push({ path, why: 'a subtitle file whose name is no clip name' })
      return OK
    }
    if (VIDEO.test(name)) {
      if (parseClipName(stem)) addOnce(found.clipVideos, stem, path, found)
      else if (parseEpisodeName(stem)) addOnce(found.episodeVideos, stem, path, found)
      else found.unused.push({ path, why: 'a video whose name is no clip or episode name' })
      return OK
    }
    if (!/\.jsonl?$/i.test(name) && !named) {
      // a folder of downloads holds much else; only what may be missed is worth a line
      if (ARCHIVE.test(name)) found.unused.push({ path, why: 'an archive; unpack it first' })
      return OK
    }
    if (ARCHIVE.test(name)) return failed('bad_file', `${path}: an archive; unpack it and name what was in it`)
  }
  const detected = await detect(path)
  if (!detected.ok) {
    if (named || detected.failure.kind !== 'bad_file') return detected
    found.unused.push({ path, why: detected.failure.message })
    return OK
  }
  const kind = stated?.kind ?? detected.value.kind
  if (kind === null) {
    if (!named) found.unused.push({ path, why: `not a kind of file that import reads: ${detected.value.found}` })
    return named ? unknownFile(path, detected.value) : OK
  }
  const { size, mtimeMs } = await stat(path)
  found.files.push({
    path,
    kind,
    form: detected.value.form,
    split: kind === 'questions' ? (stated?.split ?? splitOf(path)) : null,
    format: kind === 'questions' ? (detected.value.format ?? 'TVQA') : null,
    bytes: size,
    modified: mtimeMs,
  })
  return OK
}

function unknownFile(path: string, { found }: Detected): Result<never> {
  const known = Object.entries(KINDS).map(([kind, form]) => `${kind} (${form})`)
  return failed(
    'bad_file',
    `${path}: holds ${found}; expected one of ${known.join(', ')}; name another file, or say which it is with --as KIND=${path}`,
  )
}

/** The first of two for one clip counts, in order of path. */
function addOnce(map: Map<string, string>, id: string, path: string, found: Inputs): void {
  const first = map.get(id)
  if (first === undefined) map.set(id, path)
  else if (resolve(first) !== resolve(path))
    found.unused.push({ path, why: `${id} has ${join(dirname(first), basename(first))} already` })
}
