/** Types of elements, and shapes whose sizes may be known only when a program runs. */

export type ElementType = 'float16' | 'float32' | 'float64' | 'int32' | 'int64' | 'bool'

/** What a program computes in: float32, or float64 to check gradients. */
export type FloatType = 'float32' | 'float64'

/** A dimension: a fixed size, or a name (`B`, `T`, `B*T`) whose size is known when the program runs. */
export type Dim = number | string

/** Product of dimensions: numbers are multiplied, names are joined (`B*T`, `2*T`). */
export function product(...dims: readonly Dim[]): Dim {
  let fixed = 1
  const names: string[] = []
  for (const dim of dims) {
    if (typeof dim === 'number') fixed *= dim
    else {
      if (dim.includes('+')) throw new Error(`A sum of sizes (${dim}) cannot be multiplied`)
      for (const factor of dim.split('*')) {
        if (/^\d+$/.test(factor)) fixed *= Number(factor)
        else names.push(factor)
      }
    }
  }
  if (names.length === 0) return fixed
  names.sort()
  return (fixed === 1 ? names : [String(fixed), ...names]).join('*')
}

/** Sum of dimensions, of which a name is given to the whole (`T+16*N`). */
export function total(dims: readonly Dim[]): Dim {
  return dims.every((dim) => typeof dim === 'number') ? (dims as number[]).reduce((a, b) => a + b) : dims.join('+')
}

/** Shape of an elementwise result under NumPy broadcasting. */
export function broadcastShape(a: readonly Dim[], b: readonly Dim[]): Dim[] {
  const rank = Math.max(a.length, b.length)
  const shape: Dim[] = []
  for (let axis = 0; axis < rank; axis += 1) {
    const left = a[axis - rank + a.length] ?? 1
    const right = b[axis - rank + b.length] ?? 1
    if (left !== right && left !== 1 && right !== 1)
      throw new Error(`Shapes [${a.join()}] and [${b.join()}] do not broadcast`)
    shape.push(left === 1 ? right : left)
  }
  return shape
}

export function sameShape(a: readonly Dim[], b: readonly Dim[]): boolean {
  return a.length === b.length && a.every((dim, axis) => dim === b[axis])
}
