/**
 * How much memory a graph's values take at once while it runs in order, from their shapes: sums of sizes, as polynomials in the named
 * dimensions, so that any batch can be judged without running it. Inputs and constants are not counted. What a runtime adds (rounding,
 * fragmentation) is not known here; what it saves by writing results over their operands is not either.
 */

import type { Dim, ElementType } from '../shape.ts'
import type { Value } from './graph.ts'

/** Bytes by product of dimension names, names sorted and joined by `*`; the constant term is under the empty name. */
export type Polynomial = Readonly<Record<string, number>>

const WIDTH: Record<ElementType, number> = { float16: 2, float32: 4, float64: 8, int32: 4, int64: 8, bool: 1 }

/** Results that share the memory of their operand. */
const ALIASES = new Set(['Reshape', 'Squeeze', 'Unsqueeze'])

export interface LiveNode {
  operator: string
  inputs: readonly (Value | null)[]
  outputs: readonly Value[]
}

/** What is alive at each moment of a run, without moments at which less is alive than at another whatever the sizes. */
export function livePeaks(nodes: readonly LiveNode[], outputs: readonly Value[]): Polynomial[] {
  const memory = new Map<Value, Value>()
  const holder = (value: Value): Value => {
    const of = memory.get(value)
    return of === undefined ? value : holder(of)
  }
  for (const { operator, inputs, outputs: results } of nodes)
    if (ALIASES.has(operator) && !outputs.includes(results[0]!)) memory.set(results[0]!, inputs[0]!)

  const lastUse = new Map<Value, number>()
  nodes.forEach(({ inputs, outputs: results }, index) => {
    for (const value of [...inputs, ...results]) if (value !== null) lastUse.set(holder(value), index)
  })
  for (const value of outputs) lastUse.set(holder(value), Number.POSITIVE_INFINITY)

  const live = new Map<string, number>()
  const change = (bytes: Polynomial, sign: 1 | -1) => {
    for (const [term, amount] of Object.entries(bytes)) live.set(term, (live.get(term) ?? 0) + sign * amount)
  }
  const alive = new Set<Value>()
  const peaks: Polynomial[] = []
  nodes.forEach(({ inputs, outputs: results }, index) => {
    for (const value of results) {
      if (memory.has(value)) continue
      alive.add(value)
      change(bytesOf(value), 1)
    }
    keepPeak(peaks, Object.fromEntries([...live].filter(([, amount]) => amount !== 0)))
    for (const value of new Set([...inputs, ...results])) {
      if (value === null) continue
      const held = holder(value)
      if (lastUse.get(held)! <= index && alive.delete(held)) change(bytesOf(held), -1)
    }
  })
  return peaks
}

/**
 * Bytes at the worst moment, as a function of the sizes: products of names once, then one pass over all peaks, since it is asked for
 * every way to divide a batch. Throws on a name that has no size.
 */
export function peakBytes(peaks: readonly Polynomial[]): (sizes: Readonly<Record<string, number>>) => number {
  const termsOfAll = [...new Set(peaks.flatMap((peak) => Object.keys(peak)))]
  const factors = termsOfAll.map((term) => term.split('*').filter(Boolean))
  const amounts = peaks.map((peak) => Float64Array.from(termsOfAll, (term) => peak[term] ?? 0))
  return (sizes) => {
    const products = factors.map((names) =>
      names.reduce((product, name) => {
        const size = sizes[name]
        if (size === undefined) throw new Error(`The memory of a run depends on ${name}, whose size is not given`)
        return product * size
      }, 1),
    )
    let most = 0
    for (const of of amounts) {
      let bytes = 0
      for (let term = 0; term < products.length; term += 1) bytes += of[term]! * products[term]!
      most = Math.max(most, bytes)
    }
    return most
  }
}

/** Adds a peak unless one that is there is at least as large in every term; drops those that it covers. */
function keepPeak(peaks: Polynomial[], added: Polynomial): void {
  const covers = (a: Polynomial, b: Polynomial) => Object.entries(b).every(([term, amount]) => (a[term] ?? 0) >= amount)
  if (peaks.some((peak) => covers(peak, added))) return
  const others = peaks.filter((peak) => !covers(added, peak))
  peaks.splice(0, peaks.length, ...others, added)
}

function bytesOf({ type, shape }: Value): Polynomial {
  let bytes: Polynomial = { '': WIDTH[type] }
  for (const dim of shape) bytes = multiply(bytes, terms(dim))
  return bytes
}

/** A dimension as a polynomial: `16*N+T` is 16 N + T. */
function terms(dim: Dim): Polynomial {
  if (typeof dim === 'number') return { '': dim }
  const sum: Record<string, number> = {}
  for (const part of dim.split('+')) {
    const factors = part.split('*')
    const fixed = factors
      .filter((factor) => /^\d+$/.test(factor))
      .reduce((product, factor) => product * Number(factor), 1)
    const term = factors
      .filter((factor) => !/^\d+$/.test(factor))
      .sort()
      .join('*')
    sum[term] = (sum[term] ?? 0) + fixed
  }
  return sum
}

function multiply(a: Polynomial, b: Polynomial): Polynomial {
  const result: Record<string, number> = {}
  for (const [left, x] of Object.entries(a)) {
    for (const [right, y] of Object.entries(b)) {
      const term = [...left.split('*'), ...right.split('*')].filter(Boolean).sort().join('*')
      result[term] = (result[term] ?? 0) + x * y
    }
  }
  return result
}
