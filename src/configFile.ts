/**
 * Reads a YAML file against a zod schema and says, for each bad key, where it stands, what was expected, what came and what was
 * probably meant. Knows YAML and schemas, and nothing of what the keys mean: that is config.ts.
 *
 * `extends: presets/paper.yaml` (a path from the file's own folder) takes another file's values where this one has none. Mappings are
 * joined key by key; a section that says another `type` or `name` than the one it extends is another kind of thing and replaces it, as
 * lists and plain values do; the same holds for a `type` or `name` that `--set` gives. A bare word, here and as the file itself, is a file of configs/presets: `extends: paper`.
 */
import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { closest, distance } from 'fastest-levenshtein'
import { type Document, isMap, isNode, LineCounter, parse, parseDocument } from 'yaml'
import { z } from 'zod'
import type { FailureKind, Result } from './types.ts'

type Path = readonly PropertyKey[]
type Issue = z.core.$ZodIssue

/** More problems than this are counted, not listed. */
const MOST_PROBLEMS = 5

/**
 * The values of the file, completed by the schema's defaults.
 * `overrides` are `path.to.key=value` as written on the command line, the value in YAML; they win over the file.
 */
export async function readConfigFile<Schema extends z.ZodType>(
  schema: Schema,
  path: string,
  overrides: readonly string[] = [],
): Promise<Result<z.output<Schema>>> {
  const own = await readLayer(presetPath(path) ?? path, path)
  if (!own.ok) return own
  const overridden = new Map<string, string>()
  for (const override of overrides) {
    const problem = applyOverride(own.value.document, override, overridden)
    if (problem) return fail(problem)
  }
  const extended = await layersFrom(own.value)
  if (!extended.ok) return extended
  const layers = extended.value

  const parsed = schema.safeParse(joined(layers), { reportInput: true })
  if (parsed.success) return { ok: true, value: parsed.data }
  const keys = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as JsonSchema
  // An unknown key first: a missing one is often the same key, mistyped.
  const issues = parsed.error.issues.toSorted(
    (a, b) => Number(b.code === 'unrecognized_keys') - Number(a.code === 'unrecognized_keys'),
  )
  const problems = issues.flatMap((issue) => describe(issue, keys)).map(({ at, text }) => `${place(at)}: ${text}`)
  const more = problems.length > MOST_PROBLEMS ? `; and ${problems.length - MOST_PROBLEMS} more` : ''
  return fail(problems.slice(0, MOST_PROBLEMS).join('; ') + more)

  /** `configs/quickstart.yaml:12: grpo.learningRate`, or the override that set it. */
  function place(at: Path): string {
    const name = at.join('.')
    const override = [...overridden].find(
      ([key]) => name === key || name.startsWith(`${key}.`) || key.startsWith(`${name}.`),
    )
    if (override) return `--set ${override[1]}: ${name}`
    const found = locate(layers, at)
    return `${found ?? path}: ${name || 'the file'}`
  }
}

const PRESETS = fileURLToPath(new URL('../configs/presets', import.meta.url))

/** The file of a preset where `name` is a bare word; null for paths. */
function presetPath(name: string): string | null {
  return /^[a-z0-9-]+$/i.test(name) ? join(PRESETS, `${name}.yaml`) : null
}

/** Names of the presets. */
export async function presetNames(): Promise<string[]> {
  const files = await readdir(PRESETS).catch(() => [])
  return files.map((file) => file.replace(/\.yaml$/, '')).sort()
}

/** One file, as written. */
interface Layer {
  path: string
  document: Document
  lines: LineCounter
}

/** `name`: what was written for the path. */
async function readLayer(path: string, name: string): Promise<Result<Layer>> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : String(error)
    const presets = (await presetNames()).join(', ')
    return fail(
      `${name}: cannot read this configuration: ${reason}. Give the path of a YAML file, such as those in configs/, or a preset: ${presets}.`,
      'missing_file',
    )
  }
  const lines = new LineCounter()
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true })
  const broken = document.errors[0]
  if (broken) return fail(`${path}:${lines.linePos(broken.pos[0]).line}: this is not YAML: ${broken.message}`)
  if (!isMap(document.contents))
    return fail(`${path}: expected a YAML mapping of keys to values, got ${kindOf(document.toJS())}.`)
  return { ok: true, value: { path, document, lines } }
}

const EXTENDS = 'extends'

/** The file and those that it extends, one after another, nearest first. */
async function layersFrom(own: Layer): Promise<Result<Layer[]>> {
  const layers = [own]
  for (let last = own; ; ) {
    const named: unknown = last.document.get(EXTENDS)
    if (named === undefined) return { ok: true, value: layers }
    const at = locate([last], [EXTENDS]) ?? last.path
    if (typeof named !== 'string' || named === '')
      return fail(
        `${at}: ${EXTENDS}: expected the path of a YAML file from the folder of this one, or a preset, got ${shown(named)}.`,
      )
    const path = presetPath(named) ?? join(dirname(last.path), named)
    if (layers.some((layer) => resolve(layer.path) === resolve(path)))
      return fail(`${at}: ${EXTENDS}: ${path} extends this file in turn; one of them has to stand alone.`)
    const next = await readLayer(path, presetPath(named) === null ? path : named)
    if (!next.ok) return fail(`${at}: ${EXTENDS}: ${next.failure.message}`, next.failure.kind)
    layers.push(next.value)
    last = next.value
  }
}

/** The values of all layers, the nearest first, without what they extend. */
function joined(layers: readonly Layer[]): unknown {
  const values = layers.map(({ document }) => {
    const { [EXTENDS]: _, ...rest } = document.toJS() as Record<string, unknown>
    return rest
  })
  return values.reduceRight((base, own) => over(base, own))
}

function over(base: Record<string, unknown>, own: Record<string, unknown>): Record<string, unknown> {
  const result = { ...base }
  for (const [key, value] of Object.entries(own)) {
    const below = base[key]
    result[key] = isMapping(below) && isMapping(value) && !differs(below, value) ? over(below, value) : value
  }
  return result
}

/** Keys that say what kind of thing a section describes. */
const KINDS: readonly string[] = ['type', 'name']

/** Whether two sections are of different kinds, such as an embedded agent and one behind an endpoint. */
function differs(base: Record<string, unknown>, own: Record<string, unknown>): boolean {
  return KINDS.some((key) => key in base && key in own && base[key] !== own[key])
}

/** A short name for what a run was configured to do: the same values give the same hash, in whatever order. */
export function configHash(config: unknown): string {
  return createHash('sha256')
    .update(JSON.stringify(sorted(config)))
    .digest('hex')
    .slice(0, 16)
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, item]) => [key, sorted(item)]),
  )
}

function applyOverride(document: Document, override: string, overridden: Map<string, string>): string | null {
  const equals = override.indexOf('=')
  const key = override.slice(0, equals)
  if (equals < 1 || key.split('.').some((part) => part === '')) {
    return `--set ${override}: expected path.to.key=value, such as --set grpo.learningRate=1e-4.`
  }
  try {
    const at = key.split('.')
    const value: unknown = parse(override.slice(equals + 1))
    const section = at.slice(0, -1)
    const kind = at.at(-1) as string
    // another kind of thing has other keys
    const replaces =
      KINDS.includes(kind) && section.length > 0 && ![undefined, value].includes(document.getIn(at) as unknown)
    document.setIn(replaces ? section : at, replaces ? { [kind]: value } : value)
  } catch {
    return `--set ${override}: ${key} cannot be set, since ${key.split('.').slice(0, -1).join('.')} is no mapping in this file.`
  }
  overridden.set(key, override)
  return null
}

/** One text per bad key of an issue. */
function describe(issue: Issue, schema: JsonSchema): { at: Path; text: string }[] {
  if (issue.code === 'unrecognized_keys') {
    const known = keysAt(schema, issue.path)
    return issue.keys.map((key) => ({
      at: [...issue.path, key],
      text: `there is no such key${suggestion(key, known)}`,
    }))
  }
  return [{ at: issue.path, text: `${expectation(issue)}, got ${shown(came(issue))}${meant(issue)}` }]
}

function expectation(issue: Issue): string {
  if (issue.code === 'invalid_value')
    return `expected ${issue.values.map((value) => JSON.stringify(value)).join(' or ')}`
  if (issue.code === 'invalid_union' && 'options' in issue && Array.isArray(issue.options))
    return `expected ${issue.options.join(' or ')}`
  if (issue.code === 'invalid_union')
    return `expected ${issue.errors
      .flat()
      .map((error) => expectation(error).replace('expected ', ''))
      .join(' or ')}`
  const message = issue.message.replace(/^(Invalid input|Too small|Too big|Invalid string|Invalid number): /, '')
  return message.replace(/, received .*$/, '')
}

/** The bad value itself; for a choice between kinds zod reports the whole object. */
function came(issue: Issue): unknown {
  const whole = issue.code === 'invalid_union' && 'options' in issue && isRecord(issue.input)
  return whole ? (issue.input as Record<string, unknown>)[String(issue.path.at(-1))] : issue.input
}

/** For a value of a closed set: the nearest of the set. */
function meant(issue: Issue): string {
  const set =
    issue.code === 'invalid_value'
      ? issue.values
      : issue.code === 'invalid_union' && 'options' in issue
        ? issue.options
        : null
  const value = came(issue)
  return Array.isArray(set) && typeof value === 'string' ? suggestion(value, set.map(String)) : ''
}

/** `; did you mean "x"?` when a known word is near, else the known words. */
export function suggestion(word: string, known: readonly string[]): string {
  if (known.length === 0) return ''
  const nearest = closest(word, known)
  if (distance(word, nearest) <= Math.max(2, Math.ceil(nearest.length / 3))) return `; did you mean "${nearest}"?`
  return `; known here: ${known.join(', ')}`
}

interface JsonSchema {
  properties?: Record<string, JsonSchema>
  items?: JsonSchema
  anyOf?: JsonSchema[]
  oneOf?: JsonSchema[]
  allOf?: JsonSchema[]
}

/** Keys that the schema knows at a path; of every branch, where it branches. */
function keysAt(schema: JsonSchema, path: Path): string[] {
  let here = branches(schema)
  for (const step of path) {
    here = here.flatMap((one) => {
      const next = typeof step === 'number' ? one.items : one.properties?.[String(step)]
      return next ? branches(next) : []
    })
  }
  return [...new Set(here.flatMap((one) => Object.keys(one.properties ?? {})))]
}

function branches(schema: JsonSchema): JsonSchema[] {
  const inner = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])]
  return [schema, ...inner.flatMap(branches)]
}

/** `file:line` of a key, or of the nearest thing around it, in the nearest file that has it. */
function locate(layers: readonly Layer[], path: Path): string | null {
  for (let length = path.length; length > 0; length--) {
    for (const { path: file, document, lines } of layers) {
      const offset = offsetOf(document, path.slice(0, length))
      if (offset !== null) return `${file}:${lines.linePos(offset).line}`
    }
  }
  return null
}

/** Where a key stands in the text. */
function offsetOf(document: Document, path: Path): number | null {
  const parent = path.length === 1 ? document.contents : document.getIn(path.slice(0, -1), true)
  if (isMap(parent)) {
    const pair = parent.items.find((item) => isNode(item.key) && String(item.key) === String(path.at(-1)))
    if (pair && isNode(pair.key) && pair.key.range) return pair.key.range[0]
  }
  const node = document.getIn(path, true)
  return isNode(node) && node.range ? node.range[0] : null
}

function shown(value: unknown): string {
  if (value === undefined) return 'nothing'
  const text = JSON.stringify(value) ?? String(value)
  return text.length > 60 ? `${text.slice(0, 57)}...` : text
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return 'nothing'
  return Array.isArray(value) ? 'a list' : `a ${typeof value}`
}

const isMapping = (value: unknown): value is Record<string, unknown> => isRecord(value) && !Array.isArray(value)

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null

function fail<T>(message: string, kind: FailureKind = 'bad_file'): Result<T> {
  return { ok: false, failure: { boundary: 'config', kind, message } }
}
