/**
 * Reads and writes the safetensors format (https://github.com/huggingface/safetensors#format):
 * 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes.
 * In memory every tensor is float32: F16 and BF16 are widened one tensor at a time, and rounded to when such a file is asked for.
 * Knows no model: tensors are names, shapes and numbers.
 */

import { closeSync, fstatSync, openSync, readFileSync, readSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Result } from '../types.ts'
import { CheckpointError, failureOf, replaceFile } from './durable.ts'
import { narrow, widen } from './half.ts'
import { parseObject } from './json.ts'

/** Row-major values; `data.length` is the product of `shape`. */
export interface NamedTensor {
  shape: readonly number[]
  data: Float32Array
}

export type NamedTensors = ReadonlyMap<string, NamedTensor>

const BYTES_PER_ELEMENT = { F32: 4, F16: 2, BF16: 2 } as const

/** Element type in a file. */
export type StoredType = keyof typeof BYTES_PER_ELEMENT

/**
 * Tensors that are made when they are asked for, such as those of a file of several gigabytes: nothing keeps them, and asking again
 * makes them again. Iterating holds one at a time. `read` may throw a `CheckpointError`.
 */
export class LazyTensors implements ReadonlyMap<string, NamedTensor> {
  constructor(
    readonly shapes: ReadonlyMap<string, readonly number[]>,
    private readonly read: (name: string) => Float32Array,
  ) {}

  get size(): number {
    return this.shapes.size
  }

  has(name: string): boolean {
    return this.shapes.has(name)
  }

  get(name: string): NamedTensor | undefined {
    const shape = this.shapes.get(name)
    return shape === undefined ? undefined : { shape, data: this.read(name) }
  }

  keys(): MapIterator<string> {
    return this.shapes.keys()
  }

  *values(): MapIterator<NamedTensor> {
    for (const name of this.keys()) yield this.get(name)!
  }

  *entries(): MapIterator<[string, NamedTensor]> {
    for (const name of this.keys()) yield [name, this.get(name)!]
  }

  [Symbol.iterator](): MapIterator<[string, NamedTensor]> {
    return this.entries()
  }

  forEach(each: (tensor: NamedTensor, name: string, all: NamedTensors) => void): void {
    for (const [name, tensor] of this) each(tensor, name, this)
  }
}

/** Without reading tensors that are not in memory. */
export function shapesOf(tensors: NamedTensors): ReadonlyMap<string, readonly number[]> {
  if (tensors instanceof LazyTensors) return tensors.shapes
  return new Map([...tensors].map(([name, { shape }]) => [name, shape]))
}

interface StoredEntry {
  path: string
  dtype: StoredType
  shape: number[]
  begin: number
  end: number
  /** When the file was last written: read later, it must be the same file. */
  written: number
}

/** Reads all tensors. @param path a `.safetensors` file, or the `.safetensors.index.json` of a sharded one. */
export async function readSafetensors(path: string): Promise<Result<NamedTensors>> {
  try {
    return { ok: true, value: new Map(openTensors(path)) }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `reading ${path}`) }
  }
}

/** Reads the headers only; the tensors are read when asked for. Throws a `CheckpointError`. */
export function openTensors(path: string): LazyTensors {
  const entries = path.endsWith('.index.json') ? shardedEntries(path) : fileEntries(path)
  const shapes = new Map([...entries].map(([name, { shape }]) => [name, shape]))
  return new LazyTensors(shapes, (name) => readTensor(entries.get(name)!))
}

/** Writes float32 tensors in order of name, so that equal tensors give equal files. Atomic: see `replaceFile`. */
export async function writeSafetensors(path: string, tensors: NamedTensors): Promise<Result<void>> {
  try {
    await replaceFile(path, safetensorsBytes(tensors))
    return { ok: true, value: undefined }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `writing ${path}`) }
  }
}

/** The file's content in order; float32 tensors are not copied. */
export function* safetensorsBytes(tensors: NamedTensors, type: StoredType = 'F32'): Generator<Uint8Array> {
  const shapes = shapesOf(tensors)
  const names = [...shapes.keys()].sort()
  // transformers refuses files whose metadata lacks the format.
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } }
  let offset = 0
  for (const name of names) {
    const shape = shapes.get(name)!
    const end = offset + elements(shape) * BYTES_PER_ELEMENT[type]
    header[name] = { dtype: type, shape, data_offsets: [offset, end] }
    offset = end
  }
  const json = Buffer.from(JSON.stringify(header))
  const padding = (8 - (json.length % 8)) % 8
  const start = Buffer.alloc(8 + json.length + padding, ' ')
  start.writeBigUInt64LE(BigInt(json.length + padding), 0)
  json.copy(start, 8)
  yield start
  for (const name of names) {
    const { shape, data } = tensors.get(name)!
    if (data.length !== elements(shape))
      throw new Error(`tensor ${name} has ${data.length} values, but its shape is [${shape}]`)
    const stored = type === 'F32' ? data : narrow(data, type)
    yield new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength)
  }
}

function shardedEntries(indexPath: string): Map<string, StoredEntry> {
  const index = parseObject(readFileSync(indexPath, 'utf8'), indexPath)
  const weightMap = index.weight_map
  if (typeof weightMap !== 'object' || weightMap === null) {
    throw new CheckpointError('bad_file', `${indexPath}: expected an object "weight_map" from tensor name to file`)
  }
  const entries = new Map<string, StoredEntry>()
  for (const shard of new Set(Object.values(weightMap as Record<string, string>))) {
    for (const [name, entry] of fileEntries(join(dirname(indexPath), shard))) entries.set(name, entry)
  }
  for (const name of Object.keys(weightMap)) {
    if (!entries.has(name)) throw new CheckpointError('bad_file', `${indexPath}: no shard holds tensor ${name}`)
  }
  return entries
}

/** Entries with absolute file offsets, checked against the file's size. Throws a `CheckpointError` when the file is not whole. */
export function fileEntries(path: string): Map<string, StoredEntry> {
  return reading(path, (file) => {
    const bad = (problem: string) =>
      new CheckpointError('bad_file', `${path} is no whole safetensors file: ${problem}; download or save it again`)
    const { size, mtimeMs: written } = fstatSync(file)
    if (size < 8) throw bad(`it has ${size} bytes`)
    const length = Number(Buffer.from(readBytes(file, 0, 8, path).buffer).readBigUInt64LE(0))
    if (length > size - 8 || length > 100e6) throw bad(`its header should have ${length} bytes, the file has ${size}`)
    const text = Buffer.from(readBytes(file, 8, length, path).buffer).toString('utf8')
    const entries = new Map<string, StoredEntry>()
    for (const [name, value] of Object.entries(parseObject(text, `header of ${path}`))) {
      if (name === '__metadata__') continue
      const {
        dtype,
        shape,
        data_offsets: offsets,
      } = value as { dtype?: unknown; shape?: unknown; data_offsets?: unknown }
      if (typeof dtype !== 'string' || !isCounts(shape) || !isCounts(offsets) || offsets.length !== 2) {
        throw bad(`tensor ${name} lacks dtype, shape or data_offsets`)
      }
      if (!isStoredType(dtype))
        throw bad(`tensor ${name} is ${dtype}, expected one of ${Object.keys(BYTES_PER_ELEMENT).join(', ')}`)
      const [begin, end] = [offsets[0]! + 8 + length, offsets[1]! + 8 + length]
      if (end > size) throw bad(`tensor ${name} ends at byte ${end}, the file at ${size}`)
      if (end - begin !== elements(shape) * BYTES_PER_ELEMENT[dtype])
        throw bad(`tensor ${name} has ${end - begin} bytes for shape [${shape}] of ${dtype}`)
      entries.set(name, { path, dtype, shape, begin, end, written })
    }
    return entries
  })
}

function readTensor({ path, dtype, begin, end, written }: StoredEntry): Float32Array {
  const { buffer } = reading(path, (file) => {
    if (fstatSync(file).mtimeMs !== written)
      throw new CheckpointError('bad_file', `${path} was replaced while its tensors were read; run again`)
    return readBytes(file, begin, end - begin, path)
  })
  return dtype === 'F32' ? new Float32Array(buffer) : widen(new Uint16Array(buffer), dtype)
}

function reading<T>(path: string, read: (file: number) => T): T {
  const file = openSync(path, 'r')
  try {
    return read(file)
  } finally {
    closeSync(file)
  }
}

function readBytes(file: number, position: number, length: number, path: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length)
  for (let done = 0; done < length; ) {
    const count = readSync(file, bytes, done, Math.min(length - done, 1 << 28), position + done)
    if (count === 0) throw new CheckpointError('bad_file', `${path} ended early, at byte ${position + done}`)
    done += count
  }
  return bytes
}

function isStoredType(dtype: string): dtype is StoredType {
  return dtype in BYTES_PER_ELEMENT
}

function isCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0)
}

function elements(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1)
}
