/**
 * Low-rank pairs beside the projections (LoRA, Hu et al. 2021, arXiv:2106.09685): their names and shapes.
 * Knows no files (see `adapter.ts`) and no graph: the forward pass is `architecture.ts`.
 */
import type { LORA_TARGETS } from './options.ts'

export type LoraTarget = (typeof LORA_TARGETS)[number]

export interface Lora {
  rank: number
  /** Factor on the product of the pair: alpha / rank, or alpha / sqrt(rank) with `use_rslora`. */
  scale: number
  targets: readonly LoraTarget[]
}

/** A [rank, in] and B [out, rank]; the projection gains scale B A. */
export const LORA_A = 'lora_A.weight'
export const LORA_B = 'lora_B.weight'

/** Names and shapes of the pair beside a projection [out, in], in the model's own naming; none where it has no adapter. */
export function loraShapes(lora: Lora | null, projection: string, out: number, width: number): [string, number[]][] {
  if (!lora?.targets.some((target) => projection.endsWith(`.${target}`))) return []
  return [
    [`${projection}.${LORA_A}`, [lora.rank, width]],
    [`${projection}.${LORA_B}`, [out, lora.rank]],
  ]
}

export function isLora(name: string): boolean {
  return name.endsWith(`.${LORA_A}`) || name.endsWith(`.${LORA_B}`)
}
