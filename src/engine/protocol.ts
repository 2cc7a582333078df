/** What a device can be asked, and what its client and its thread say to each other: plain data that crosses a thread boundary. */

import type { EngineOptions } from './options.ts'
import type { Program } from './program.ts'
import type { ElementType } from './shape.ts'

/** float16 numbers are held as their bits. */
export type TensorArray = Float32Array | Float64Array | Int32Array | BigInt64Array | Uint8Array | Uint16Array

/** A tensor outside the graph, row-major. */
export interface TensorData {
  type: ElementType
  dims: readonly number[]
  data: TensorArray
}

/** Where the rows of an output go: row r of the output, seen as [rows, width], becomes row `rows[r]` of the named tensor; -1 is dropped. */
export interface Scatter {
  into: string
  rows: Int32Array
}

export interface RunRequest {
  session: string
  /** Inputs sent along with the request. */
  feeds?: Readonly<Record<string, TensorData>>
  /** Inputs that are named tensors on the device, by input name. Adds to, and overrides, the session's own bindings. */
  bind?: Readonly<Record<string, string>>
  /** Outputs that the caller wants back. */
  fetch?: readonly string[]
  /** Outputs that become (or replace) named tensors. */
  keep?: Readonly<Record<string, string>>
  /** Outputs that are added to named tensors, which are created at the first time. */
  accumulate?: Readonly<Record<string, string>>
  /** Outputs whose rows are written into named tensors [rows, width] after the run, as with key-value caches. */
  scatter?: Readonly<Record<string, Scatter>>
  /**
   * Outputs written straight into the memory of named tensors of the same shape, which may be inputs of the same run.
   * Safe only when the old content has a single reader, as with a key-value cache that is scattered into: the runtime does not check.
   */
  inPlace?: Readonly<Record<string, string>>
}

export interface AdamwTensor {
  parameter: string
  gradient: string
  /** First and second moments; created with zeros at the first step. */
  first: string
  second: string
  weightDecay: number
}

export interface AdamwRequest {
  tensors: readonly AdamwTensor[]
  learningRate: number
  beta1: number
  beta2: number
  epsilon: number
  /** Number of this update, from 1: corrects the moments' bias. */
  step: number
  /** Factor on every gradient, from clipping by global norm. */
  gradientScale: number
}

/** Which engine carries programs out, and on what. */
export interface EngineInUse {
  engine: 'onnxruntime' | 'tfjs'
  version: string
  /** Execution provider of ONNX Runtime, or backend of TensorFlow.js. */
  backend: string
  /** Why it is not the one that was preferred; null when it is. */
  note: string | null
}

/** Named tensors and sessions of programs behind promises. Requests are carried out in the order in which they are made. */
export interface Device {
  readonly inUse: EngineInUse
  /** Places tensors on the device under these names. The arrays are copied; later changes to them are not seen. */
  upload(tensors: ReadonlyMap<string, TensorData>): Promise<void>
  /** Copies of named tensors, in the order asked for. */
  download(names: readonly string[]): Promise<TensorData[]>
  copy(from: string, to: string): Promise<void>
  /** Forgets tensors; unknown names are ignored. */
  remove(names: readonly string[]): Promise<void>
  /** Names of the tensors that the device holds. */
  names(): Promise<string[]>
  /** Makes a program ready to run, in place of an earlier one of that name; `bind` gives the named tensors that stand for some of its inputs in every run. */
  createSession(session: string, program: Program, bind?: Readonly<Record<string, string>>): Promise<void>
  releaseSession(session: string): Promise<void>
  /** Runs a session; resolves to the outputs in `fetch`. */
  run(request: RunRequest): Promise<Record<string, TensorData>>
  /** Sum of squares of each tensor, in float64: not finite when any entry is not. */
  squaredNorms(names: readonly string[]): Promise<number[]>
  adamw(request: AdamwRequest): Promise<void>
  /** Finishes what was asked for, then stops the thread. */
  close(): Promise<void>
}

/** `engine: tfjs 4.22.0 on wasm (...)`. */
export function describeEngine({ engine, version, backend, note }: EngineInUse): string {
  return `engine: ${engine} ${version} on ${backend}${note === null ? '' : ` (${note})`}`
}

type Method = Exclude<keyof Device, 'inUse'>

export type Call =
  | { method: 'open'; arguments: [options: EngineOptions] }
  | { [M in Method]: { method: M; arguments: Parameters<Device[M]> } }[Method]

export interface Envelope {
  id: number
  call: Call
}

export type Reply = { id: number; ok: true; value: unknown } | { id: number; ok: false; error: string }
