/** float16 bits of float32 numbers, against the library that computes them one by one. */
import { Float16Array } from '@petamoriken/float16'
import { expect, test } from 'vitest'
import { halves } from '../../src/policy/half.ts'

test('every float16, the numbers between two of them and their neighbours in float32 get the bits that the library gives', () => {
  const numbers: number[] = []
  const all = [...new Float16Array(Uint16Array.from({ length: 0x7c00 }, (_, bits) => bits).buffer)]
  const bits = new Uint32Array(1)
  const float = new Float32Array(bits.buffer)
  all.forEach((number, index) => {
    const next = all[index + 1] ?? 65_536
    float[0] = (number + next) / 2
    const middle = bits[0]!
    for (const near of [middle - 1, middle, middle + 1]) {
      bits[0] = near
      numbers.push(float[0], -float[0])
    }
    numbers.push(number, -number)
  })
  numbers.push(-0, 1e-45, 65_519.996, 65_520, 65_536, 3e38, Infinity, -Infinity)
  const values = Float32Array.from(numbers)
  expect([...halves(values)]).toEqual([...new Uint16Array(new Float16Array(values).buffer)])
  expect(new Float16Array(halves(Float32Array.of(NaN)).buffer)[0]).toBeNaN()
})

test('a view that begins inside a buffer is read from its beginning', () => {
  expect([...halves(new Float32Array([7, 1, -2, 7]).subarray(1, 3))]).toEqual([0x3c00, 0xc000])
})
