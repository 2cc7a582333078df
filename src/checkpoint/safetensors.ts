/**
 * Reads and writes the safetensors format (https://github.com/huggingface/safetensors#format):
 * 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes.
 * Everything in memory is float32: F16 and BF16 files are widened when read, and only F32 is written.
 * Knows no model: tensors are names, shapes and numbers.
 */

import type { FileHandle } from 'node:fs/promises'
import { open, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Result } from '../types.ts'
import { CheckpointError, failureOf, replaceFile } from './durable.ts'

/** Row-major values; `data.length` is the product of `shape`. */
export interface NamedTensor {
  shape: readonly number[]
  data: Float32Array
}

export type NamedTensors = ReadonlyMap<string, NamedTensor>

const BYTES_PER_ELEMENT: Readonly<Record<string, number>> = { F32: 4, F16: 2, BF16: 2 }

interface HeaderEntry {
  name: string
  dtype: string
  shape: number[]
  begin: number
  end: number
}

/** @param path a `.safetensors` file, or the `.safetensors.index.json` of a sharded one. */
export async function readSafetensors(path: string): Promise<Result<NamedTensors>> {
  try {
    const value = path.endsWith('.index.json') ? await readSharded(path) : await readFileTensors(path)
    return { ok: true, value }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `reading ${path}`) }
  }
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

/** The file's content in order, without copying the tensors. */
export function* safetensorsBytes(tensors: NamedTensors): Generator<Uint8Array> {
  const names = [...tensors.keys()].sort()
  // transformers refuses files whose metadata lacks the format.
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } }
  let offset = 0
  for (const name of names) {
    const { shape, data } = tensors.get(name)!
    if (data.length !== elements(shape)) {
      throw new Error(`tensor ${name} has ${data.length} values, but its shape is [${shape}]`)
    }
    header[name] = { dtype: 'F32', shape, data_offsets: [offset, offset + data.byteLength] }
    offset += data.byteLength
  }
  const json = Buffer.from(JSON.stringify(header))
  const padding = (8 - (json.length % 8)) % 8
  const start = Buffer.alloc(8 + json.length + padding, ' ')
  start.writeBigUInt64LE(BigInt(json.length + padding), 0)
  json.copy(start, 8)
  yield start
  for (const name of names) {
    const { data } = tensors.get(name)!
    yield new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
  }
}

/** Throws a `CheckpointError` when the file is not whole; reads its header only. */
export async function checkSafetensors(path: string): Promise<void> {
  const file = await open(path, 'r')
  try {
    await readHeader(file, path)
  } finally {
    await file.close()
  }
}

async function readSharded(indexPath: string): Promise<NamedTensors> {
  const index = parseObject(await readFile(indexPath, 'utf8'), indexPath)
  const weightMap = index.weight_map
  if (typeof weightMap !== 'object' || weightMap === null) {
    throw new CheckpointError('bad_file', `${indexPath}: expected an object "weight_map" from tensor name to file`)
  }
  const tensors = new Map<string, NamedTensor>()
  for (const shard of new Set(Object.values(weightMap as Record<string, string>))) {
    for (const [name, tensor] of await readFileTensors(join(dirname(indexPath), shard))) tensors.set(name, tensor)
  }
  for (const name of Object.keys(weightMap)) {
    if (!tensors.has(name)) throw new CheckpointError('bad_file', `${indexPath}: no shard holds tensor ${name}`)
  }
  return tensors
}

async function readFileTensors(path: string): Promise<NamedTensors> {
  const file = await open(path, 'r')
  try {
    const tensors = new Map<string, NamedTensor>()
    for (const entry of await readHeader(file, path)) {
      const bytes = new Uint8Array(entry.end - entry.begin)
      await readFully(file, bytes, entry.begin, path)
      tensors.set(entry.name, { shape: entry.shape, data: toFloat32(bytes, entry.dtype) })
    }
    return tensors
  } finally {
    await file.close()
  }
}

/** Entries with absolute file offsets, checked against the file's size. */
async function readHeader(file: FileHandle, path: string): Promise<HeaderEntry[]> {
  const bad = (problem: string) =>
    new CheckpointError('bad_file', `${path} is no whole safetensors file: ${problem}; download or save it again`)
  const { size } = await file.stat()
  if (size < 8) throw bad(`it has ${size} bytes`)
  const lengthBytes = new Uint8Array(8)
  await readFully(file, lengthBytes, 0, path)
  const length = Number(Buffer.from(lengthBytes.buffer).readBigUInt64LE(0))
  if (length > size - 8 || length > 100e6) throw bad(`its header should have ${length} bytes, the file has ${size}`)
  const headerBytes = new Uint8Array(length)
  await readFully(file, headerBytes, 8, path)
  const header = parseObject(Buffer.from(headerBytes.buffer).toString('utf8'), `header of ${path}`)
  const entries: HeaderEntry[] = []
  for (const [name, value] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const {
      dtype,
      shape,
      data_offsets: offsets,
    } = value as { dtype?: unknown; shape?: unknown; data_offsets?: unknown }
    if (typeof dtype !== 'string' || !isCounts(shape) || !isCounts(offsets) || offsets.length !== 2) {
      throw bad(`tensor ${name} lacks dtype, shape or data_offsets`)
    }
    const width = BYTES_PER_ELEMENT[dtype]
    if (width === undefined)
      throw bad(`tensor ${name} is ${dtype}, expected one of ${Object.keys(BYTES_PER_ELEMENT).join(', ')}`)
    const [begin, end] = [offsets[0]! + 8 + length, offsets[1]! + 8 + length]
    if (end > size) throw bad(`tensor ${name} ends at byte ${end}, the file at ${size}`)
    if (end - begin !== elements(shape) * width)
      throw bad(`tensor ${name} has ${end - begin} bytes for shape [${shape}] of ${dtype}`)
    entries.push({ name, dtype, shape, begin, end })
  }
  return entries
}

function isCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0)
}

function elements(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1)
}

async function readFully(file: FileHandle, into: Uint8Array, position: number, path: string): Promise<void> {
  for (let done = 0; done < into.length; ) {
    const { bytesRead } = await file.read(into, done, Math.min(into.length - done, 1 << 28), position + done)
    if (bytesRead === 0) throw new CheckpointError('bad_file', `${path} ended early, at byte ${position + done}`)
    done += bytesRead
  }
}

export function parseJson(text: string, where: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new CheckpointError(
      'bad_file',
      `${where}: expected JSON: ${(error as Error).message}; restore it from a copy or save it again`,
    )
  }
}

export function parseObject(text: string, where: string): Record<string, unknown> {
  const value = parseJson(text, where)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new CheckpointError(
      'bad_file',
      `${where}: expected a JSON object, got ${Array.isArray(value) ? 'an array' : typeof value}`,
    )
  }
  return value as Record<string, unknown>
}

function toFloat32(bytes: Uint8Array<ArrayBuffer>, dtype: string): Float32Array {
  if (dtype === 'F32') return new Float32Array(bytes.buffer)
  const halves = new Uint16Array(bytes.buffer)
  const out = new Float32Array(halves.length)
  // bfloat16 is the upper half of a float32.
  if (dtype === 'BF16') {
    const bits = new Uint32Array(out.buffer)
    for (let i = 0; i < halves.length; i++) bits[i] = halves[i]! << 16
  } else {
    for (let i = 0; i < halves.length; i++) out[i] = halfToNumber(halves[i]!)
  }
  return out
}

/** IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits. */
function halfToNumber(half: number): number {
  const sign = half & 0x8000 ? -1 : 1
  const exponent = (half >> 10) & 0x1f
  const fraction = half & 0x3ff
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}
