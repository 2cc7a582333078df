/** Arithmetic of vectors. */

/** From -1 to 1; 0 where one of them is zero. */
export function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let [dot, squaresA, squaresB] = [0, 0, 0]
  for (let at = 0; at < a.length; at++) {
    dot += a[at]! * b[at]!
    squaresA += a[at]! ** 2
    squaresB += b[at]! ** 2
  }
  return squaresA === 0 || squaresB === 0 ? 0 : dot / Math.sqrt(squaresA * squaresB)
}

/** Rows of a flat array. */
export function rowsOf(flat: Float32Array, count: number): Float32Array[] {
  const size = flat.length / Math.max(1, count)
  return Array.from({ length: count }, (_, index) => flat.subarray(index * size, (index + 1) * size))
}
