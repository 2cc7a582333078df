/** The list of trajectories: filters, a page of rows, the way to the next. Which rows those are was decided before. */
import type { Label, labelKinds } from '../trajectory/labels.ts'
import type { TrajectoryRow } from '../trajectory/schema.ts'
import { addressOf, type ListQuery, labelled, narrows, outcomes } from './filter.ts'
import { type Html, html, type Part } from './html.ts'
import type { Columns } from './runIndex.ts'
import { pathOf } from './trajectoryPage.ts'
import { chips, count, decimal, LABEL_WORDS, outcome, words } from './words.ts'

export interface ListContent {
  query: ListQuery
  gold: boolean
  columns: Columns
  rows: readonly { row: TrajectoryRow; label: Label | null }[]
  /** Matches known so far, and whether that is all of them. */
  matches: { count: number; final: boolean }
  /** Share of the run's file that is indexed, 0 to 1. */
  indexed: number
  pages: { current: number; last: number }
  /** Set when the run could not be read again. */
  trouble: string | null
}

export function listBody(content: ListContent): Html {
  const { query, rows, trouble } = content
  return html`
<h1 class="unseen">Trajectories</h1>
${filters(content)}
<div data-follow id="results">
${trouble !== null && html`<p class="trouble" role="alert">${trouble}</p>`}
<p class="tally" role="status">${tally(content)}</p>
${rows.length > 0 ? table(content) : emptyList(content)}
${pager(content)}
</div>
<datalist id="versions">${content.columns.version.names.slice(-200).map((name) => html`<option value="${name}">`)}</datalist>
${query.gold === undefined && content.gold && html`<p class="hint">Gold is shown because the filter tells it.</p>`}`
}

function tally({ columns, matches, indexed, query }: ListContent): Part {
  const all = html`<strong>${count(columns.length)}</strong> trajectories`
  const reading = indexed < 1 ? `, reading the run: ${Math.floor(indexed * 100)} %` : ''
  if (!narrows(query) && query.q === undefined) return html`${all}${reading}`
  const more = matches.final ? '' : '+'
  return html`<strong>${count(matches.count)}${more}</strong> of ${all}${reading}${!matches.final && indexed === 1 ? ', searching' : ''}`
}

function emptyList({ matches, indexed }: ListContent): Html {
  if (!matches.final || indexed < 1) return html`<p class="empty">Nothing yet.</p>`
  return html`<p class="empty">No trajectory is like that. <a href="/">Show all</a></p>`
}

// ---------------------------------------------------------------- filters

function filters({ query, columns }: ListContent): Html {
  const names = (column: { names: readonly string[] }) => column.names.filter((name) => name !== '').toSorted()
  const { from, to, system, version, least, most, order } = query
  const more = [from, to, system, version, least, most, order]
  const kinds = columns.kind.names.some((name) => name !== '')
  return html`<form class="filters" method="get" action="/" role="search" data-submits>
<div class="searchline">
<label class="grow"><span class="unseen">Search question, answer, reasoning or id</span>
<input type="search" name="q" id="search" value="${query.q ?? ''}" placeholder="Search question, answer, reasoning or id" aria-keyshortcuts="/" autocomplete="off"></label>
<button class="button strong">Search</button>
</div>
<div class="fields">
${select('outcome', 'Outcome', query.outcome, outcomes, words, true)}
${kinds && select('kind', 'Question kind', query.kind, names(columns.kind), words, true)}
${select('stop', 'Stopped', query.stop, names(columns.stop))}
${field('turns', 'Turns', query.turns, { type: 'number', min: 0 })}
${select('label', 'Label', query.label, labelled, (name) => LABEL_WORDS[name as (typeof labelKinds)[number]] ?? { any: 'labelled', none: 'not labelled' }[name] ?? name)}
${narrows(query) && html`<a class="button" href="/${query.gold === '1' && '?gold=1'}">Clear</a>`}
</div>
<details id="more"${more.some((value) => value !== undefined) && html` open`}>
<summary>More filters and order</summary>
<div class="fields">
${pair('Reward', field('least', 'at least', query.least, { type: 'number', step: 'any' }, true), field('most', 'at most', query.most, { type: 'number', step: 'any' }, true))}
${pair('Steps', field('from', 'from', query.from, { type: 'number', min: 0 }), field('to', 'to', query.to, { type: 'number', min: 0 }))}
${columns.system.names.length > 1 && select('system', 'System', query.system, names(columns.system))}
${columns.version.names.length > 1 && field('version', 'Policy version', query.version, { list: 'versions' })}
${select('order', 'Order', query.order, ['newest'], () => 'newest first', false, 'as stored')}
</div>
</details>
<p class="hint"><span aria-hidden="true">★</span> Choosing one of these shows gold.</p>
${query.gold === '1' && html`<input type="hidden" name="gold" value="1">`}
</form>`
}

/** Marks filters that tell what only gold tells. */
const star = html` <span class="star" title="choosing one shows gold">★</span>`

function field(
  name: string,
  label: string,
  value: string | number | undefined,
  attributes: Record<string, string | number>,
  tells = false,
): Html {
  const rest = Object.entries(attributes).map(([key, given]) => html` ${key}="${given}"`)
  return html`<label><span>${label}${tells && star}</span><input name="${name}" value="${value ?? ''}"${rest}></label>`
}

function pair(legend: string, first: Html, second: Html): Html {
  return html`<span class="pair" role="group" aria-label="${legend}"><span class="pair-name" aria-hidden="true">${legend}</span>${first}${second}</span>`
}

function select(
  name: string,
  label: string,
  value: string | undefined,
  choices: readonly string[],
  said: (choice: string) => string = words,
  tells = false,
  absent = 'any',
): Html {
  const option = (choice: string, text: string) =>
    html`<option value="${choice}"${choice === (value ?? '') && html` selected`}>${text}</option>`
  return html`<label><span>${label}${tells && star}</span><select name="${name}">${option('', absent)}${choices.map((choice) => option(choice, said(choice)))}</select></label>`
}

// ---------------------------------------------------------------- rows

function table(content: ListContent): Html {
  const { gold, rows, columns } = content
  const steps = columns.length > 0 && columns.step.at(columns.length - 1) !== columns.step.at(0)
  return html`<table class="list">
<caption class="unseen">Trajectories, each with its question, what the master answered and what it did</caption>
<thead><tr>
${gold && html`<th scope="col">Outcome</th>`}
<th scope="col">Question</th><th scope="col">Answer</th><th scope="col" title="one letter per turn: g asks where to look, v asks what is there, a answers, x malformed">Turns</th>
${gold && html`<th scope="col" class="number">Reward</th>`}
${steps && html`<th scope="col" class="number">Step</th>`}
<th scope="col">Stopped</th><th scope="col">Label</th>
</tr></thead>
<tbody>${rows.map(({ row, label }) => listRow(row, label, content, steps))}</tbody>
</table>`
}

function listRow(row: TrajectoryRow, label: Label | null, { gold, query }: ListContent, steps: boolean): Html {
  const answer = row.answer === null ? null : (row.options[row.answer] ?? null)
  return html`<tr>
${gold && html`<td data-name="Outcome">${outcome(row.correct, row.reward !== null)}</td>`}
<td class="question"><a href="${addressOf(pathOf('t', row.trajectoryId), query, { page: undefined })}">${row.question}</a><span class="id">${row.trajectoryId}${gold && row.kind !== null && html` · ${row.kind}`}</span></td>
<td data-name="Answer" class="answer">${answer ?? html`<span class="none">none</span>`}</td>
<td data-name="Turns">${chips(row.turns)}</td>
${gold && html`<td data-name="Reward" class="number">${row.reward === null ? '–' : decimal(row.reward.total)}</td>`}
${steps && html`<td data-name="Step" class="number">${row.step}</td>`}
<td data-name="Stopped" class="stop ${row.stopReason}">${words(row.stopReason)}</td>
<td data-name="Label" class="labels">${label !== null && (label.kinds.length > 0 ? label.kinds.map((kind) => html`<span class="tag">${LABEL_WORDS[kind]}</span>`) : html`<span class="tag">note</span>`)}</td>
</tr>`
}

function pager({ query, pages, matches }: ListContent): Html | null {
  if (pages.last <= 1) return null
  const to = (target: number, text: string, rel: string) =>
    target >= 1 && target <= pages.last && target !== pages.current
      ? html`<a class="button" rel="${rel}" href="${addressOf('/', query, { page: target === 1 ? undefined : target })}">${text}</a>`
      : html`<span class="button off">${text}</span>`
  return html`<nav class="pager" aria-label="Pages of the list">
${to(1, 'First', 'first')}${to(pages.current - 1, 'Previous', 'prev')}
<span>Page ${count(pages.current)} of ${count(pages.last)}${matches.final ? '' : '+'}</span>
${to(pages.current + 1, 'Next', 'next')}${to(pages.last, 'Last', 'last')}
</nav>`
}
