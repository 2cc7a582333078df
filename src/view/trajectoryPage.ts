/**
 * One trajectory as a person reads it: the question, the episode, each turn with what was seen, the runs of the same question beside
 * it, what it earned and what it used. Without gold nothing on the page tells whether it was right.
 */
import type { KeyedClip, KeyedQuestion } from '../trajectory/answerKey.ts'
import { type Label, labelKinds } from '../trajectory/labels.ts'
import type { TrajectoryRow } from '../trajectory/schema.ts'
import { idInAddress } from '../trajectory/stores.ts'
import type { Turn, Usage } from '../types.ts'
import { addressOf, type ListQuery } from './filter.ts'
import { type Html, html } from './html.ts'
import { timeline } from './timeline.ts'
import {
  actionWords,
  chip,
  chips,
  clipName,
  count,
  decimal,
  duration,
  facts,
  LABEL_WORDS,
  outcome,
  signed,
  words,
} from './words.ts'

/** A trajectory in another store, `root` being where its pages are. */
export interface Elsewhere {
  label: string
  root: string
  row: TrajectoryRow
}

export interface TrajectoryContent {
  row: TrajectoryRow
  /** The runs of the same question, this one among them, in order. */
  mates: readonly TrajectoryRow[]
  /** The same question in other stores, such as other cells of a comparison. */
  elsewhere: readonly Elsewhere[]
  query: ListQuery
  /** Set when gold was asked for; its null where neither answer key nor data set has it. */
  gold: { known: KeyedQuestion | null } | null
  /** Of the episode; null where they are not known. */
  clips: readonly KeyedClip[] | null
  label: Label | null
  labeller: string
  /** Place in the list, from 1; null when it is not in it. */
  place: { number: number; of: number } | null
  previous: string | null
  next: string | null
  /** By turn and frame: whether the file is still the one that was looked at; null where that was not recorded. */
  pictures: readonly (readonly (boolean | null)[])[]
}

export function pathOf(prefix: 't' | 'tokens' | 'frames', trajectoryId: string): string {
  return `/${prefix}/${idInAddress(trajectoryId)}`
}

export function trajectoryBody(content: TrajectoryContent): Html {
  const { row, query, clips, gold, place, previous, next } = content
  const known = gold?.known ?? null
  return html`
<nav class="crumbs" aria-label="Place in the list">
<a class="button" href="${addressOf('/', query)}">List <kbd>u</kbd></a>
${step(previous, 'Previous', 'p', 'prev')}
${step(next, 'Next', 'n', 'next')}
<span class="place">${place !== null && html`${count(place.number)} of ${count(place.of)}`}</span>
<span class="id">${row.trajectoryId}</span>
</nav>
<div class="columns">
<div class="reading">
${question(content)}
<section aria-labelledby="episode-title"><h2 id="episode-title">Episode ${row.episodeId}</h2>
${
  clips === null
    ? html`<p class="hint">The clips of this episode are not known: name the folder of its data set with <code>--dataset</code>.</p>`
    : timeline(row, clips, known)
}</section>
<section aria-labelledby="turns-title"><h2 id="turns-title">Turns <span class="aside">${row.turns.length} of at most ${row.budget.turns}; then ${words(row.stopReason)}</span></h2>
<ol class="turns">${row.turns.map((turn, index) => turnCard(turn, index, content))}</ol>
${row.failure !== null && html`<p class="trouble">${row.failure.message}</p>`}
</section>
<section id="tokens" aria-labelledby="tokens-title"><h2 id="tokens-title">Tokens</h2>
<p><a class="button" data-loads="tokens" aria-keyshortcuts="t" href="${addressOf(pathOf('tokens', row.trajectoryId), {}, { gold: query.gold })}">Show the tokens that were sampled <kbd>t</kbd></a></p>
</section>
</div>
<aside class="beside" aria-label="Label, rewards and facts">
${labelForm(content)}
${matesSection(content)}
${elsewhereSection(content)}
${gold !== null && rewards(row)}
${usage(row)}
${about(row)}
</aside>
</div>`
}

function step(href: string | null, text: string, key: string, rel: string): Html {
  return href === null
    ? html`<span class="button off">${text}</span>`
    : html`<a class="button" rel="${rel}" href="${href}">${text} <kbd>${key}</kbd></a>`
}

function question({ row, gold }: TrajectoryContent): Html {
  const known = gold?.known ?? null
  return html`<section class="question" aria-labelledby="question-title">
<h1 id="question-title">${row.question}</h1>
<ol class="options">${row.options.map((option, index) => {
    const chosen = row.answer === index
    const right = known?.answer === index || (gold !== null && known === null && row.correct && chosen)
    return html`<li class="${[chosen && 'chosen', right && 'gold'].filter(Boolean).join(' ')}"><span class="letter">a${index}</span> <span>${option}</span>${chosen && html` <span class="mark">chosen</span>`}${right && html` <span class="mark gold">right answer</span>`}</li>`
  })}</ol>
${row.answer === null && html`<p class="hint">No answer was given: ${words(row.stopReason)}.</p>`}
${
  gold !== null &&
  html`<p class="verdict">${outcome(row.correct, row.reward !== null)} <span>${row.grounded ? 'The clip with the evidence was shown.' : 'The clip with the evidence was never shown.'}</span>${row.kind !== null && html` <span class="tag">${row.kind}</span>`}</p>`
}
</section>`
}

// ---------------------------------------------------------------- turns

function turnCard(turn: Turn, index: number, { row, pictures }: TrajectoryContent): Html {
  const { name } = actionWords(turn.action.kind)
  const { reasoning, act } = partsOf(turn.response)
  return html`<li class="turn" id="turn-${index + 1}" tabindex="-1">
<h3><span class="turn-number">${index + 1}</span> ${chip(turn)} <span>${turn.role !== undefined && `${turn.role} `}${name}${turn.action.kind === 'call' && ` ${turn.action.tool}`}</span>${turn.frozen === true && html` <span class="tag" title="not the policy: in no loss">frozen</span>`}${!turn.wellFormed && html` <span class="tag warn" title="not exactly one well-formed action">badly formed</span>`}
<span class="aside">${turn.clipId === null ? 'nothing in view' : clipName(turn.clipId, row.episodeId)}</span></h3>
<div class="exchange"><div>
${reasoning !== '' && html`<div class="said"><h4>Reasoning</h4><p class="text">${reasoning}</p></div>`}
<div class="said"><h4>Action</h4><p class="text act">${act === '' ? turn.response : act}</p>
${turn.action.kind === 'invalid' && html`<p class="hint">${turn.action.problem}</p>`}${turn.action.kind === 'call' && html`<p class="hint">${turn.action.query}</p>`}</div>
</div>
${
  turn.observation !== null &&
  html`<div class="said observed"><h4>Observation</h4><p class="text">${turn.observation}</p></div>`
}
</div>
${turn.failure !== null && html`<p class="trouble">${turn.failure.boundary} failed: ${turn.failure.message}</p>`}
${turn.frames.length > 0 && frames(turn, index, row, pictures[index] ?? [])}
</li>`
}

/** What was thought and what was done: reasoning is in its tags or before the first one. */
export function partsOf(response: string): { reasoning: string; act: string } {
  const tagged = /<(reasoning|think|thinking)>([\s\S]*?)<\/\1>/.exec(response)
  if (tagged)
    return {
      reasoning: (tagged[2] ?? '').trim(),
      act: (response.slice(0, tagged.index) + response.slice(tagged.index + tagged[0].length)).trim(),
    }
  const first = response.indexOf('<')
  if (first <= 0) return { reasoning: '', act: response.trim() }
  return { reasoning: response.slice(0, first).trim(), act: response.slice(first).trim() }
}

function frames(turn: Turn, index: number, row: TrajectoryRow, same: readonly (boolean | null)[]): Html {
  return html`<div class="said"><h4>${turn.frames.length === 1 ? 'The frame' : `The ${turn.frames.length} frames`} that the vision agent saw</h4>
<ul class="frames">${turn.frames.map((frame, place) => {
    const name = `${clipName(frame.clipId, row.episodeId)} at ${frame.time.toFixed(1)} s`
    const href = `${pathOf('frames', row.trajectoryId)}?turn=${index}&frame=${place}`
    return html`<li><figure>${
      frame.picture === undefined
        ? html`<span class="no-picture">The picture was not recorded</span>`
        : html`<a href="${href}" data-enlarges><img loading="lazy" src="${href}" alt="Frame of ${name}"></a>`
    }<figcaption>${name}${same[place] === false && html` <span class="tag warn" title="the file was changed or moved since the run: this may be another picture">file changed</span>`}</figcaption></figure></li>`
  })}</ul></div>`
}

// ---------------------------------------------------------------- beside

function labelForm({ row, label, labeller, gold }: TrajectoryContent): Html {
  return html`<section class="panel" aria-labelledby="label-title"><h2 id="label-title">Label</h2>
<form class="label" method="post" action="/labels" data-label data-trajectory="${row.trajectoryId}" data-gold="${gold === null ? '' : '1'}">
<fieldset><legend class="unseen">What is wrong</legend>${labelKinds.map(
    (kind, index) =>
      html`<label><input type="checkbox" name="kinds" value="${kind}" aria-keyshortcuts="${index + 1}"${label?.kinds.includes(kind) === true && html` checked`}> ${LABEL_WORDS[kind]} <kbd>${index + 1}</kbd></label>`,
  )}</fieldset>
<label class="note"><span>Note <kbd>o</kbd></span><textarea name="note" rows="2">${label?.note ?? ''}</textarea></label>
<label class="by"><span>By</span><input name="by" value="${labeller}" autocomplete="username"></label>
<button class="button strong">Save</button>
<p class="saved" role="status">${label !== null && html`${label.by}, ${label.at.slice(0, 16).replace('T', ' ')}${label.goldShown ? ', with gold shown' : ''}`}</p>
</form></section>`
}

function rewards({ reward, advantage }: TrajectoryRow): Html {
  if (reward === null)
    return html`<section class="panel" aria-labelledby="reward-title"><h2 id="reward-title">Reward</h2><p>None: it failed outside the policy and is not trained on.</p></section>`
  const extras = Object.entries(reward.extras ?? {})
  const widest = Math.max(
    1,
    ...[reward.format, reward.answer, reward.turnCost, ...extras.map(([, one]) => one)].map(Math.abs),
  )
  const bar = (name: string, value: number, meaning: string) =>
    html`<tr><th scope="row" title="${meaning}">${name}</th><td class="bar"><span class="${value < 0 ? 'below' : 'above'}" style="width:${((50 * Math.abs(value)) / widest).toFixed(1)}%"></span></td><td class="number">${signed(value)}</td></tr>`
  return html`<section class="panel" aria-labelledby="reward-title"><h2 id="reward-title">Reward</h2>
<table class="rewards"><caption class="unseen">Reward by part</caption><tbody>
${bar('answer', reward.answer, '1 for the right option, else 0')}
${bar('format', reward.format, 'alpha times the aggregated format reward')}
${bar('turn cost', reward.turnCost, 'what the turns cost; 0 or negative')}
${extras.map(([name, one]) => bar(name, one, 'weighted measure of the system'))}
<tr class="total"><th scope="row">total</th><td></td><td class="number">${signed(reward.total)}</td></tr>
<tr><th scope="row" title="reward against those of the same question, as used in the update">advantage</th><td></td><td class="number">${advantage === null ? '–' : signed(advantage)}</td></tr>
</tbody></table></section>`
}

function matesSection({ row, mates, query, gold }: TrajectoryContent): Html | null {
  if (mates.length < 2) return null
  return html`<section class="panel" aria-labelledby="mates-title"><h2 id="mates-title">Group <span class="aside">${mates.length} runs of this question <kbd>m</kbd></span></h2>
<div class="scroll"><table class="mates"><caption class="unseen">Runs of the same question side by side</caption>
<thead><tr><th scope="col">Run</th><th scope="col">Turns</th><th scope="col">Answer</th>${gold !== null && html`<th scope="col" class="number">R</th><th scope="col" class="number" title="advantage">A</th>`}</tr></thead>
<tbody>${mates.map(
    (mate) => html`<tr${mate.trajectoryId === row.trajectoryId && html` class="current" aria-current="true"`}>
<th scope="row"><a href="${addressOf(pathOf('t', mate.trajectoryId), query)}">${mate.sample}</a></th>
<td>${chips(mate.turns)}</td>
<td>${mate.answer === null ? html`<span class="none">${words(mate.stopReason)}</span>` : html`<span title="${mate.options[mate.answer] ?? null}">a${mate.answer}</span>`}${gold !== null && html` ${mark(mate)}`}</td>
${gold !== null && html`<td class="number">${mate.reward === null ? '–' : decimal(mate.reward.total)}</td><td class="number">${mate.advantage === null ? '–' : signed(mate.advantage)}</td>`}
</tr>`,
  )}</tbody></table></div></section>`
}

function elsewhereSection({ elsewhere, gold }: TrajectoryContent): Html | null {
  if (elsewhere.length === 0) return null
  return html`<section class="panel" aria-labelledby="elsewhere-title"><h2 id="elsewhere-title">Elsewhere <span class="aside">the same question in other stores</span></h2>
<div class="scroll"><table class="mates"><caption class="unseen">The same question in other stores</caption>
<thead><tr><th scope="col">Store</th><th scope="col">Turns</th><th scope="col">Answer</th></tr></thead>
<tbody>${elsewhere.map(
    ({ label, root, row }) => html`<tr>
<th scope="row"><a href="${root}t/${idInAddress(row.trajectoryId)}${gold !== null && '?gold=1'}">${label}</a></th>
<td>${chips(row.turns)}</td>
<td>${row.answer === null ? html`<span class="none">${words(row.stopReason)}</span>` : html`<span title="${row.options[row.answer] ?? null}">a${row.answer}</span>`}${gold !== null && html` ${mark(row)}`}</td>
</tr>`,
  )}</tbody></table></div></section>`
}

function mark({ correct, reward }: TrajectoryRow): Html {
  if (reward === null) return html`<span class="outcome failed" title="failed outside the policy">–</span>`
  return correct
    ? html`<span class="outcome right" title="right">✓</span>`
    : html`<span class="outcome wrong" title="wrong">✕</span>`
}

function usage({ usage: { master, grounding, vision, roles = {}, agents = {} } }: TrajectoryRow): Html {
  const line = (name: string, { calls, promptTokens, completionTokens, frames, seconds, costUsd, cached }: Usage) =>
    html`<tr><th scope="row">${name}</th><td class="number"${cached > 0 && html` title="${cached} answered from a cache"`}>${calls}</td><td class="number">${count(promptTokens)}</td><td class="number">${count(completionTokens)}</td><td class="number">${frames}</td><td class="number">${decimal(seconds)}</td><td class="number">${costUsd === 0 ? '0' : costUsd.toFixed(4)}</td></tr>`
  return html`<section class="panel" aria-labelledby="usage-title"><h2 id="usage-title">Used</h2>
<div class="scroll"><table class="usage"><caption class="unseen">What each role used</caption><thead><tr><td></td><th scope="col" class="number">calls</th><th scope="col" class="number" title="tokens read">in</th><th scope="col" class="number" title="tokens written">out</th><th scope="col" class="number">frames</th><th scope="col" class="number" title="seconds spent waiting">s</th><th scope="col" class="number" title="US dollars">$</th></tr></thead>
<tbody>${line('master', master)}${Object.entries(roles).map(([name, one]) => line(one.frozen ? `${name}, frozen` : `as ${name}`, one))}${line('grounding', grounding)}${line('vision', vision)}${Object.entries(agents).map(([name, one]) => line(name, one))}</tbody></table></div></section>`
}

function about(row: TrajectoryRow): Html {
  const { budget } = row
  return html`<section class="panel" aria-labelledby="about-title"><h2 id="about-title">Run</h2>${facts([
    ['system', row.system],
    ['policy', row.policyVersion],
    ['step', row.step, 'training step, or pass over the questions'],
    ['sample', row.sample, 'position in the group'],
    ['question', row.qid],
    ['K', budget.turns, 'how often the master could write, or rounds of another system'],
    ['w', budget.windowClips, 'clips in view at once'],
    ['tokens written', count(row.sampledTokens)],
    ['took', duration(row.seconds)],
    ['seed', row.seed],
  ])}</section>`
}
