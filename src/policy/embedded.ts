/**
 * The policy that is trained: a decoder on the engine's device, perhaps with an adapter, and its tokenizer. Sampling reads the very weights that a
 * trainer on the same device changes; after each change `bumpVersion` must be called.
 * Further versions and adapters can be sampled from beside it, on the same device. Reads no files (a loaded checkpoint is given to it) and
 * does not train.
 */

import type { Device } from '../engine/device.ts'
import { openDevice } from '../engine/device.ts'
import type { EngineOptions } from '../engine/options.ts'
import type { Failure, FailureKind, GenerateRequest, Generation, Policy, Result, ToldToken } from '../types.ts'
import type { Adaptable } from './adapter.ts'
import { adaptedConfig, trainedOf } from './adapter.ts'
import type { DecoderConfig } from './architecture.ts'
import { trainedWeights } from './architecture.ts'
import type { Decoder } from './decoder.ts'
import { openDecoder } from './decoder.ts'
import type { CheckpointPolicyOptions } from './options.ts'
import { cutOf, samplingProblem, stopping } from './settings.ts'
import type { StopCheck } from './stopping.ts'
import { stopCheck } from './stopping.ts'
import type { TextTokenizer, TokenizerSource } from './tokenizer.ts'
import { openTokenizer } from './tokenizer.ts'
import { bindTrained, bindWeights, uploadWeights } from './weights.ts'

/** What a policy is made of; a loaded `Checkpoint` is one. */
export type PolicySource = TokenizerSource & Adaptable

export interface EmbeddedPolicySettings
  extends Pick<CheckpointPolicyOptions, 'rows' | 'cacheTokens'>,
    Partial<Pick<CheckpointPolicyOptions, 'frozenType'>> {
  /** What it is called in reports and versions: the run's name, or the checkpoint's path. */
  name: string
  /** The training step that the weights come from; 0 when absent. */
  step?: number
}

/** Fails when the configuration, the weights or the tokenizer are incomplete or not supported, naming what is wrong. */
export async function openPolicy(
  source: PolicySource,
  engine: EngineOptions,
  settings: EmbeddedPolicySettings,
): Promise<Result<EmbeddedPolicy>> {
  const tokenizer = openTokenizer(source, settings.name)
  if (!tokenizer.ok) return tokenizer
  let device: Device | null = null
  try {
    const config: DecoderConfig = { ...adaptedConfig(source), matrixType: settings.frozenType ?? 'float32' }
    if (tokenizer.value.vocabularySize > config.vocabularySize) {
      throw new Error(
        `the tokenizer knows ${tokenizer.value.vocabularySize} tokens, the model ${config.vocabularySize} (vocab_size)`,
      )
    }
    device = await openDevice(engine)
    const trained = trainedOf(source)
    await uploadWeights(device, config, { get: (name) => trained.get(name) ?? source.weights.get(name) })
    const decoder = await openDecoder(device, config, settings)
    return { ok: true, value: new EmbeddedPolicy(device, config, tokenizer.value, decoder, settings) }
  } catch (error) {
    await device?.close()
    return {
      ok: false,
      failure: { boundary: 'policy', kind: 'bad_file', message: `${settings.name}: ${(error as Error).message}` },
    }
  }
}

/** Where a policy's weights are, and what of it is its own. */
interface Place {
  /** The set on the device that its trained weights are in. */
  weights: string
  /** What the decoder calls that set. */
  set: string
  owns: 'device' | 'decoder' | 'weights'
}

let shared = 0

export class EmbeddedPolicy implements Policy {
  readonly name: string
  readonly contextLength: number
  private step: number
  private readonly nonFinite: number[][] = []
  /** Checks by their stop strings: each remembers which tokens can complete one. */
  private readonly stopChecks = new Map<string, StopCheck>()

  constructor(
    /** Holds the weights under `residentName('policy', ...)`. */
    readonly device: Device,
    readonly config: DecoderConfig,
    readonly tokenizer: TextTokenizer,
    private readonly decoder: Decoder,
    private readonly settings: EmbeddedPolicySettings,
    private readonly place: Place = { weights: 'policy', set: 'policy', owns: 'device' },
  ) {
    this.name = settings.name
    this.step = settings.step ?? 0
    this.contextLength = Math.min(config.contextLength, settings.cacheTokens)
  }

  get vocabularySize(): number {
    return this.config.vocabularySize
  }

  get version(): string {
    return `${this.name}@${this.step}`
  }

  /** The weights on the device are now those of this training step. Drops all kept caches, which the old weights made. */
  bumpVersion(step: number): void {
    this.step = step
    this.decoder.dropCaches(this.place.set)
  }

  /**
   * The same model with other weights, as another policy on the same device: both are sampled from side by side, and the frozen weights
   * under an adapter are shared. Must be closed before the policy that owns the device. Fails when it is not the same model.
   */
  withWeights(source: PolicySource, settings: { name: string; step: number }): Promise<Result<EmbeddedPolicy>> {
    return this.share(source, settings, async (weights) => {
      const config = { ...adaptedConfig(source), matrixType: this.config.matrixType }
      if (JSON.stringify(config) !== JSON.stringify(this.config))
        throw new Error(
          'config.json or adapter_config.json differs from that of the model in use; start another server',
        )
      return { config, decoder: this.decoder, place: { weights, set: weights, owns: 'weights' } }
    })
  }

  /**
   * This policy's model with an adapter on it, as another policy on the same device. Its base weights are this policy's, which must not
   * change or be dropped before it is closed. Fails when the adapter does not fit.
   */
  withAdapter(source: PolicySource, settings: { name: string; step: number }): Promise<Result<EmbeddedPolicy>> {
    return this.share(source, settings, async (weights) => {
      const config = { ...adaptedConfig(source), matrixType: this.config.matrixType }
      if (this.config.lora !== null) throw new Error('the model in use has an adapter already; expected one without')
      if (JSON.stringify({ ...config, lora: null }) !== JSON.stringify(this.config))
        throw new Error('the adapter is given with another base than the model in use')
      const own = { ...bindWeights(this.config, this.place.weights), ...bindTrained(config, weights) }
      const decoder = await openDecoder(this.device, config, this.settings, own)
      return { config, decoder, place: { weights, set: 'policy', owns: 'decoder' } }
    })
  }

  private async share(
    source: PolicySource,
    { name, step }: { name: string; step: number },
    open: (weights: string) => Promise<{ config: DecoderConfig; decoder: Decoder; place: Place }>,
  ): Promise<Result<EmbeddedPolicy>> {
    shared += 1
    const weights = `shared${shared}`
    const settings = { ...this.settings, name, step }
    let policy: EmbeddedPolicy | null = null
    try {
      const { config, decoder, place } = await open(weights)
      policy = new EmbeddedPolicy(this.device, config, this.tokenizer, decoder, settings, place)
      await uploadWeights(this.device, config, trainedOf(source), weights, 'float32', trainedWeights(config))
      return { ok: true, value: policy }
    } catch (error) {
      await policy?.close()
      return {
        ok: false,
        failure: { boundary: 'policy', kind: 'bad_file', message: `${name}: ${(error as Error).message}` },
      }
    }
  }

  async generate(request: GenerateRequest): Promise<Result<Generation>> {
    const begin = performance.now()
    const { version } = this
    const { sampling } = request
    const fail = (kind: FailureKind, problem: string): { ok: false; failure: Failure } => ({
      ok: false,
      failure: { boundary: 'policy', kind, message: `policy ${version}: ${problem}` },
    })
    let ids: readonly number[]
    try {
      ids = request.promptIds ?? this.tokenizer.encodePrompt(request.messages)
    } catch (error) {
      return fail('bad_request', `the chat template refuses these messages: ${(error as Error).message}`)
    }
    const unknown = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= this.config.vocabularySize)
    if (unknown !== undefined)
      return fail('bad_request', `token id ${unknown} in the prompt, expected 0 to ${this.config.vocabularySize - 1}`)
    if (ids.length === 0) return fail('bad_request', 'the prompt is empty')
    const problem = samplingProblem(request, this.config.vocabularySize)
    if (problem !== null) return fail('bad_request', problem)
    if (ids.length + sampling.maxTokens > this.contextLength) {
      return fail(
        'context_limit',
        `prompt of ${ids.length} tokens and ${sampling.maxTokens} to write exceed the context of ${this.contextLength}; nothing was cut`,
      )
    }
    const stop = stopping(sampling, this.tokenizer.endIds, this.stopCheck(sampling.stop))
    const { temperature, topP, topK, minP, logitBias, allowed } = sampling
    const outcome = await this.decoder.generate({
      ids,
      maxTokens: sampling.maxTokens,
      ...{ temperature, topP, topK, minP, logitBias, allowed },
      minTokens: stop.minTokens,
      seed: request.seed,
      isEnd: stop.isEnd,
      tellSampled: request.tellSampled,
      tellPrompt: request.tellPrompt,
      onToken: request.onToken,
      weights: this.place.set,
      session: request.session,
      signal: request.signal,
    })
    if (outcome.kind === 'cancelled') return fail('cancelled', 'cancelled by the caller')
    if (outcome.kind === 'not_finite') {
      this.nonFinite.push([...ids, ...outcome.ids])
      return fail(
        'bad_response',
        `the distribution after ${ids.length + outcome.ids.length} tokens is not finite; the weights are damaged, go back to an earlier checkpoint`,
      )
    }
    if (outcome.kind === 'no_choice')
      return fail('bad_request', `the constraint allows no token after ${outcome.ids.length} sampled ones`)
    // The end-of-message token is sampled and trained on, but no part of the text.
    const endsMessage = !sampling.ignoreEnd && this.tokenizer.endIds.has(outcome.ids.at(-1)!)
    const written = endsMessage ? outcome.ids.slice(0, -1) : outcome.ids
    return {
      ok: true,
      value: {
        text: this.tokenizer.decode(written),
        tokenIds: outcome.ids,
        logprobs: outcome.logprobs,
        finishReason: outcome.kind,
        stopReason: stop.reason(),
        version,
        usage: {
          calls: 1,
          promptTokens: ids.length,
          completionTokens: outcome.ids.length,
          frames: 0,
          seconds: (performance.now() - begin) / 1000,
          costUsd: 0,
          cached: 0,
        },
        ...cutOf(sampling, outcome.tokens),
        ...(request.tellSampled === undefined ? {} : { told: outcome.tokens as readonly ToldToken[] }),
        ...(outcome.prompt === undefined ? {} : { toldPrompt: outcome.prompt }),
      },
    }
  }

  /** Sequences after which the distribution was not finite, since this was last asked. */
  takeNonFinite(): number[][] {
    return this.nonFinite.splice(0)
  }

  endSession(session: string): void {
    this.decoder.endSession(session)
  }

  /** What the decoder ran, for reports. */
  statistics(): ReturnType<Decoder['statistics']> {
    return this.decoder.statistics()
  }

  /**
   * Frees the weights when everything that was asked of them has ended; the device, with policies that share it, stays. Nothing may be
   * asked of this policy any more.
   */
  async dropWeights(): Promise<void> {
    await this.decoder.retire(this.place.set)
    await this.device.remove(Object.values(bindTrained(this.config, this.place.weights)))
  }

  /** Closes the device too, unless it is another policy's: a trainer on it must be closed before. */
  async close(): Promise<void> {
    const { owns } = this.place
    if (owns !== 'device') await this.dropWeights()
    if (owns !== 'weights') await this.decoder.close()
    if (owns === 'device') await this.device.close()
  }

  private stopCheck(stop: readonly string[]): StopCheck {
    const key = JSON.stringify(stop)
    let check = this.stopChecks.get(key)
    if (!check) {
      check = stopCheck(this.tokenizer, stop)
      this.stopChecks.set(key, check)
    }
    return check
  }
}
