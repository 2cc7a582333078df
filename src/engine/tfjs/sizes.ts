/** Sizes of the named dimensions of one run. */

import type { Dim } from '../shape.ts'

export class Sizes {
  private readonly known = new Map<string, number>()

  /** Measures a value: its names get their sizes, and names that have one must agree. */
  measure(what: string, shape: readonly Dim[], dims: readonly number[]): void {
    const fits =
      shape.length === dims.length &&
      shape.every((dim, axis) => {
        const size = this.find(dim)
        if (size === null) this.known.set(dim as string, dims[axis]!)
        return size === null || size === dims[axis]
      })
    if (!fits) throw new Error(`${what}: expected shape [${shape.join()}], got [${dims.join()}]`)
  }

  /** Throws for a name that nothing measured. */
  of(dim: Dim): number {
    const size = this.find(dim)
    if (size === null) throw new Error(`No input has a dimension named ${dim}`)
    return size
  }

  /** A shape to reshape to, in which one dimension may have a new name: it takes what the others leave. */
  target(shape: readonly Dim[]): number[] {
    return shape.map((dim) => this.find(dim) ?? -1)
  }

  private find(dim: Dim): number | null {
    if (typeof dim === 'number') return dim
    const known = this.known.get(dim)
    if (known !== undefined) return known
    if (/^\d+$/.test(dim)) return Number(dim)
    for (const operator of ['+', '*']) {
      if (!dim.includes(operator)) continue
      const parts = dim.split(operator).map((part) => this.find(part))
      if (parts.some((part) => part === null)) return null
      return (parts as number[]).reduce((a, b) => (operator === '+' ? a + b : a * b))
    }
    return null
  }
}
