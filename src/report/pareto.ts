/** Which points are worth their cost. Knows no trajectories. */

export interface Point {
  cost: number
  accuracy: number
}

/**
 * The Pareto set: points that no other point beats in one of cost and accuracy while being as good in the other. Of equal points all
 * are in. By point estimates: two points closer than their intervals may trade places on other questions.
 */
export function paretoSet<P extends Point>(points: readonly P[]): P[] {
  return points.filter(
    (one) =>
      !points.some(
        (other) =>
          other.cost <= one.cost &&
          other.accuracy >= one.accuracy &&
          (other.cost < one.cost || other.accuracy > one.accuracy),
      ),
  )
}
