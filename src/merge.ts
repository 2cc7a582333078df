/**
 * `showrunner checkpoint merge`: an adapter and its base become one Hugging Face directory that needs no PEFT to be read.
 * Goes tensor by tensor, so that it needs little more memory than the largest one. Opens no engine.
 */
import type { Checkpoint } from './checkpoint/checkpoint.ts'
import { loadCheckpoint, STORED_TYPES, saveCheckpoint } from './checkpoint/checkpoint.ts'
import { LazyTensors, shapesOf } from './checkpoint/safetensors.ts'
import { adaptedConfig, trainedOf } from './policy/adapter.ts'
import { trainedWeights, weightShapes } from './policy/architecture.ts'
import { LORA_A, LORA_B } from './policy/lora.ts'
import type { WeightTensor } from './policy/weights.ts'
import type { Result } from './types.ts'

export interface MergeOptions {
  /** Directory of the adapter. */
  adapter: string
  /** Directory of its base; null: the one that the adapter names. */
  base: string | null
  out: string
  /** Element type of the merged weights; null: the one that the base declares, or float32. */
  type: keyof typeof STORED_TYPES | null
}

export async function mergeAdapter({ adapter, base, out, type }: MergeOptions): Promise<Result<string>> {
  const loaded = await (base === null ? loadCheckpoint(adapter) : loadCheckpoint(base, adapter))
  if (!loaded.ok) return loaded
  const files = loaded.value
  const bad = (message: string): Result<string> => ({
    ok: false,
    failure: { boundary: 'checkpoint', kind: 'bad_file', message: `${adapter}: ${message}` },
  })
  if (!files.adapter) return bad('this is a whole model: there is no adapter_config.json to merge')
  try {
    const { adapter: _, ...model } = { ...files, weights: mergedWeights(files), training: null }
    const saved = await saveCheckpoint(out, model, type ?? declaredType(files.config))
    return saved.ok ? { ok: true, value: out } : saved
  } catch (error) {
    return bad((error as Error).message)
  }
}

/** W + scale B A for every projection that has a pair; everything else as it is. */
function mergedWeights(files: Checkpoint): LazyTensors {
  const config = adaptedConfig(files)
  const pairs = trainedOf(files)
  const shapes = weightShapes(config)
  for (const name of trainedWeights(config)) {
    const [expected, came] = [shapes.get(name), pairs.get(name)?.shape]
    if (expected?.join() !== came?.join())
      throw new Error(
        `adapter_model.safetensors: ${name}: expected shape [${expected}], got ${came ? `[${came}]` : 'none'}`,
      )
  }
  return new LazyTensors(shapesOf(files.weights), (name) => {
    const { shape, data } = files.weights.get(name)!
    const projection = name.replace(/\.weight$/, '')
    const a = pairs.get(`${projection}.${LORA_A}`)
    const b = pairs.get(`${projection}.${LORA_B}`)
    if (a === undefined || b === undefined) return data
    return addProduct(data, shape[1]!, a, b, config.lora!.scale)
  })
}

/** matrix [out, in] + scale B A, with A [rank, in] and B [out, rank], in place. */
function addProduct(
  matrix: Float32Array,
  width: number,
  a: WeightTensor,
  b: WeightTensor,
  scale: number,
): Float32Array {
  const [rows, rank] = b.shape as [number, number]
  const row = new Float64Array(width)
  for (let out = 0; out < rows; out += 1) {
    row.fill(0)
    for (let inner = 0; inner < rank; inner += 1) {
      const factor = scale * b.data[out * rank + inner]!
      for (let column = 0; column < width; column += 1)
        row[column] = row[column]! + factor * a.data[inner * width + column]!
    }
    for (let column = 0; column < width; column += 1)
      matrix[out * width + column] = matrix[out * width + column]! + row[column]!
  }
  return matrix
}

function declaredType({ dtype, torch_dtype: older }: Record<string, unknown>): keyof typeof STORED_TYPES {
  const declared = dtype ?? older
  return typeof declared === 'string' && declared in STORED_TYPES ? declared : 'float32'
}
