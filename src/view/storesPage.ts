/** The stores of a run's folder: its own trajectories, held-out runs, the cells of a comparison. Opens none. */
import { storeRoot } from '../trajectory/stores.ts'
import { type Html, html } from './html.ts'
import type { StoreName } from './sources.ts'
import type { StoreState } from './storePages.ts'
import { count, percent } from './words.ts'

/** A store, and where it stands or why it cannot be read. */
export interface ListedStore {
  name: StoreName
  state: StoreState | { trouble: string }
}

export function storesBody(stores: readonly ListedStore[]): Html {
  return html`<h1>Stores</h1>
<div data-follow id="stores">
${
  stores.length === 0
    ? html`<p class="empty">Nothing is stored yet.</p>`
    : html`<table class="list">
<caption class="unseen">Stores of this folder, with how many trajectories they hold and how many were answered right</caption>
<thead><tr><th scope="col">Store</th><th scope="col" class="number">Trajectories</th><th scope="col" class="number">Right</th><th scope="col">State</th></tr></thead>
<tbody>${stores.map(storeRow)}</tbody>
</table>`
}
</div>`
}

function storeRow({ name: { path, label }, state }: ListedStore): Html {
  const where = path === '' || path === label ? null : html`<span class="id">${path}</span>`
  if ('trouble' in state)
    return html`<tr><td class="question">${label}${where}</td><td colspan="2"></td><td data-name="State">cannot be read: ${state.trouble}</td></tr>`
  const { trajectories, right, indexed, complete } = state
  return html`<tr>
<td class="question"><a href="${storeRoot(path)}">${label}</a>${where}</td>
<td data-name="Trajectories" class="number">${count(trajectories)}</td>
<td data-name="Right" class="number">${trajectories === 0 ? '–' : percent(right / trajectories)}</td>
<td data-name="State">${indexed < 1 ? `reading: ${Math.floor(indexed * 100)} %` : complete ? 'complete' : 'not complete'}</td>
</tr>`
}
