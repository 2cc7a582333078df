/** What the device's client and its worker say to each other. Plain data: everything here crosses a thread boundary. */

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

export type DeviceRequest =
  | { kind: 'start'; options: EngineOptions }
  | { kind: 'upload'; tensors: readonly { name: string; tensor: TensorData }[] }
  | { kind: 'download'; names: readonly string[] }
  | { kind: 'copy'; from: string; to: string }
  | { kind: 'remove'; names: readonly string[] }
  | { kind: 'names' }
  | { kind: 'createSession'; session: string; program: Program; bind: Readonly<Record<string, string>> }
  | { kind: 'releaseSession'; session: string }
  | { kind: 'run'; run: RunRequest }
  | { kind: 'squaredNorms'; names: readonly string[] }
  | { kind: 'adamw'; adamw: AdamwRequest }
  | { kind: 'close' }

export interface Envelope {
  id: number
  request: DeviceRequest
}

export type Reply = { id: number; ok: true; value: unknown } | { id: number; ok: false; error: string }
