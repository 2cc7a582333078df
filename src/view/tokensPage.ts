/**
 * A trajectory's training sequences token by token: what was sampled, how likely it was, how far the policy has moved from it. The
 * shading is a choice of the reader's and needs no script; a table has the same numbers.
 */
import type { SegmentRow } from '../trajectory/schema.ts'
import { type Html, html } from './html.ts'
import { count, decimal } from './words.ts'

export interface TokensContent {
  segments: readonly SegmentRow[]
  /** For each segment the ratios of its sampled tokens; null where the training recorded none. */
  ratios: readonly (readonly number[])[] | null
  /** The text of each id of a segment; null where the tokenizer is not at hand. */
  textsOf: ((ids: readonly number[]) => readonly string[]) | null
  /** Why there is no tokenizer, for the reader. */
  trouble: string | null
}

/** Longer prompts are folded. */
const PROMPT_SHOWN = 200

export function tokensBody({ segments, ratios, textsOf, trouble }: TokensContent): Html {
  if (segments.length === 0)
    return html`<p class="hint">No tokens are stored: the policy does not tell its token ids, or nothing was sampled.</p>`
  return html`<div class="tokens">
<fieldset class="shading"><legend>Shade</legend>
<label><input type="radio" name="shade" value="mask" checked> what was sampled</label>
<label><input type="radio" name="shade" value="logprob"> how unlikely it was</label>
<label><input type="radio" name="shade" value="ratio"${ratios === null && html` disabled`}> ratio, new to old${ratios === null && html` <span class="aside">not recorded</span>`}</label>
</fieldset>
<p class="legend mask-legend"><span class="swatch sampled"></span> sampled by the policy and trained on (action mask 1); the rest is prompt and observation.</p>
<p class="legend logprob-legend"><span class="scale unlikely" aria-hidden="true"></span> probability when it was sampled, from 1 (plain) to 0 (dark).</p>
<p class="legend ratio-legend"><span class="scale ratio" aria-hidden="true"></span> new probability over old: below ½ (left), 1 (plain), above 2 (right).</p>
${trouble !== null && html`<p class="hint">${trouble}</p>`}
${segments.map((segment, index) => segmentView(segment, ratios?.[index] ?? null, index, segments.length, textsOf))}
</div>`
}

function segmentView(
  segment: SegmentRow,
  ratiosOfSampled: readonly number[] | null,
  index: number,
  of: number,
  textsOf: TokensContent['textsOf'],
): Html {
  const { ids, actionMask, logprobs, promptLength, policyVersion } = segment
  const texts = textsOf?.(ids) ?? ids.map((id) => `${id} `)
  const sampled = [...ids.keys()].filter((place) => actionMask[place] === 1)
  const ratios = ratiosOfSampled && new Map(sampled.map((place, nth) => [place, ratiosOfSampled[nth] as number]))
  const mean = sampled.reduce((sum, place) => sum + (logprobs[place] as number), 0) / Math.max(1, sampled.length)
  const spans = (from: number, to: number) =>
    Array.from({ length: Math.max(0, to - from) }, (_, offset) => {
      const place = from + offset
      return token(segment, texts[place] as string, place, ratios?.get(place) ?? null)
    })
  return html`<section class="segment">
<h3>${of > 1 ? `Segment ${index + 1} of ${of}` : 'One segment'} <span class="aside">${count(ids.length)} tokens, ${count(sampled.length)} sampled by ${policyVersion}, mean log-probability ${decimal(mean, 3)}</span></h3>
<div class="stream">${
    promptLength > PROMPT_SHOWN
      ? html`<details><summary>${count(promptLength)} tokens of the first prompt</summary>${spans(0, promptLength)}</details>${spans(promptLength, ids.length)}`
      : spans(0, ids.length)
  }</div>
<details class="numbers"><summary>The sampled tokens as a table</summary><div class="scroll"><table>
<caption class="unseen">Sampled tokens of this segment</caption>
<thead><tr><th scope="col" class="number">place</th><th scope="col">token</th><th scope="col" class="number">id</th><th scope="col" class="number">log-probability</th><th scope="col" class="number">probability</th>${ratios !== null && html`<th scope="col" class="number">ratio</th>`}</tr></thead>
<tbody>${sampled.map((place) => {
    const logprob = logprobs[place] as number
    return html`<tr><td class="number">${place}</td><td><code>${visible(texts[place] as string)}</code></td><td class="number">${ids[place] as number}</td><td class="number">${decimal(logprob, 4)}</td><td class="number">${decimal(Math.exp(logprob), 3)}</td>${ratios !== null && html`<td class="number">${decimal(ratios.get(place) as number, 4)}</td>`}</tr>`
  })}</tbody></table></div></details>
</section>`
}

function token({ ids, actionMask, logprobs }: SegmentRow, text: string, place: number, ratio: number | null): Html {
  const shown = html`${visible(text)}`
  const after = text.includes('\n') && html`<br>`
  const id = ids[place] as number
  if (actionMask[place] !== 1) return html`<span class="tok" title="id ${id}">${shown}</span>${after}`
  const logprob = logprobs[place] as number
  const probability = Math.exp(logprob).toFixed(3)
  const shade = ratio === null ? '' : `;--r:${shadeOf(ratio).toFixed(3)}`
  const told = ratio === null ? '' : `, ratio ${decimal(ratio, 4)}`
  return html`<span class="tok sampled${ratio !== null && ratio < 1 && ' less'}" style="--p:${probability}${shade}" title="id ${id}, log-probability ${decimal(logprob, 4)}, probability ${probability}${told}">${shown}</span>${after}`
}

/** 0 at a ratio of 1, 1 at 2 or ½ and beyond. */
function shadeOf(ratio: number): number {
  return Math.min(1, Math.abs(Math.log2(ratio)))
}

function visible(text: string): string {
  return text.replaceAll('\n', '⏎')
}
