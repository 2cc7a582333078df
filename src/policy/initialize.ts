/**
 * Random starting weights for a small decoder that is trained from nothing, in Hugging Face names and layouts.
 *
 * Two departures from plain initialisation are meant to make the copying circuits of small transformers form sooner: keys start equal
 * to queries, so that equal tokens attend to each other; and the first heads of the first layer start out attending to the previous
 * token, through biases and rotary position alone. Their effect has not been measured in this repository.
 */
import seedrandom from 'seedrandom'

/** The keys of a Hugging Face `config.json` that decide the shapes. */
export interface DecoderShape {
  vocab_size: number
  hidden_size: number
  intermediate_size: number
  num_hidden_layers: number
  num_attention_heads: number
  num_key_value_heads: number
  rope_theta: number
}

export interface InitializeOptions {
  seed: number
  /** Standard deviation of the embedding. */
  embeddingScale: number
  /** How many heads of the first layer start as previous-token heads: head h looks h + 1 tokens back. */
  previousTokenHeads: number
}

export interface InitialTensor {
  shape: number[]
  data: Float32Array
}

/** Weights by Hugging Face name; projections are [out, in]. Needs as many key-value heads as heads, so that keys can equal queries. */
export function initializeWeights(shape: DecoderShape, options: InitializeOptions): Map<string, InitialTensor> {
  const { hidden_size: d, intermediate_size: ff, num_hidden_layers: layers, num_attention_heads: heads } = shape
  if (shape.num_key_value_heads !== heads) {
    throw new Error(
      `initializeWeights: ${shape.num_key_value_heads} key-value heads for ${heads} heads; expected as many`,
    )
  }
  const headSize = d / heads
  const gaussian = normalStream(options.seed)
  const tensors = new Map<string, InitialTensor>()
  const normal = (name: string, dims: number[], scale: number) =>
    tensors.set(name, { shape: dims, data: Float32Array.from({ length: product(dims) }, () => scale * gaussian()) })
  const constant = (name: string, dims: number[], value: number) =>
    tensors.set(name, { shape: dims, data: new Float32Array(product(dims)).fill(value) })

  normal('model.embed_tokens.weight', [shape.vocab_size, d], options.embeddingScale)
  for (let layer = 0; layer < layers; layer++) {
    const prefix = `model.layers.${layer}`
    // what is added to the residual stream shrinks with depth (GPT-2)
    const residual = 1 / Math.sqrt(2 * layers)
    constant(`${prefix}.input_layernorm.weight`, [d], 1)
    for (const projection of ['q', 'k', 'v']) {
      normal(`${prefix}.self_attn.${projection}_proj.weight`, [d, d], 1 / Math.sqrt(d))
      constant(`${prefix}.self_attn.${projection}_proj.bias`, [d], 0)
    }
    normal(`${prefix}.self_attn.o_proj.weight`, [d, d], residual / Math.sqrt(d))
    constant(`${prefix}.post_attention_layernorm.weight`, [d], 1)
    normal(`${prefix}.mlp.gate_proj.weight`, [ff, d], 1 / Math.sqrt(d))
    normal(`${prefix}.mlp.up_proj.weight`, [ff, d], 1 / Math.sqrt(d))
    normal(`${prefix}.mlp.down_proj.weight`, [d, ff], residual / Math.sqrt(ff))

    const data = (name: string) => (tensors.get(`${prefix}.self_attn.${name}`) as InitialTensor).data
    data('k_proj.weight').set(data('q_proj.weight'))
    if (layer > 0) continue
    for (let head = 0; head < Math.min(options.previousTokenHeads, heads - 1); head++) {
      const begin = head * headSize
      for (const name of ['q_proj.weight', 'k_proj.weight']) {
        const rows = data(name).subarray(begin * d, (begin + headSize) * d)
        rows.forEach((value, i) => {
          rows[i] = 0.2 * value
        })
      }
      const queryBias = data('q_proj.bias')
      const keyBias = data('k_proj.bias')
      const strength = 5 * (headSize / 32) ** 0.25
      const half = headSize / 2
      for (let i = 0; i < half; i++) {
        // rotating the query back by `head + 1` positions makes q . k peak at that distance
        const angle = -(head + 1) * shape.rope_theta ** (-i / half)
        keyBias[begin + i] = strength
        queryBias[begin + i] = strength * Math.cos(angle)
        queryBias[begin + half + i] = strength * Math.sin(angle)
      }
    }
  }
  constant('model.norm.weight', [d], 1)
  return tensors
}

/** An embedding [tokens, hidden] with random rows behind its own, for tokens that a vocabulary got later. */
export function withMoreRows(
  { shape: [rows, width], data }: { shape: readonly number[]; data: Float32Array },
  tokens: number,
  { seed, embeddingScale }: Pick<InitializeOptions, 'seed' | 'embeddingScale'>,
): InitialTensor {
  const gaussian = normalStream(seed)
  const [known, d] = [rows as number, width as number]
  const more = Float32Array.from({ length: (tokens - known) * d }, () => embeddingScale * gaussian())
  const all = new Float32Array(tokens * d)
  all.set(data)
  all.set(more, known * d)
  return { shape: [tokens, d], data: all }
}

/** Standard normal numbers from a seed (Box-Muller). */
function normalStream(seed: number): () => number {
  const uniform = seedrandom.alea(`weights/${seed}`)
  let spare: number | null = null
  return () => {
    if (spare !== null) {
      const value = spare
      spare = null
      return value
    }
    const radius = Math.sqrt(-2 * Math.log(1 - uniform()))
    const angle = 2 * Math.PI * uniform()
    spare = radius * Math.sin(angle)
    return radius * Math.cos(angle)
  }
}

function product(dims: readonly number[]): number {
  return dims.reduce((a, b) => a * b, 1)
}
