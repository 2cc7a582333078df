/** Boxes whose edges are shares of a picture; those of `picture.ts` are in pixels. */
import type { Box } from '../types.ts'

/** 0 when they do not meet. */
export function sharedArea(a: Box, b: Box): number {
  const across = Math.min(a[0] + a[2], b[0] + b[2]) - Math.max(a[0], b[0])
  const down = Math.min(a[1] + a[3], b[1] + b[3]) - Math.max(a[1], b[1])
  return across > 0 && down > 0 ? across * down : 0
}

/** Intersection over union. */
export function overlapOf(a: Box, b: Box): number {
  const shared = sharedArea(a, b)
  return shared === 0 ? 0 : shared / (a[2] * a[3] + b[2] * b[3] - shared)
}
