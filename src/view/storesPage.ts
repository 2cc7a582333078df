/** The stores of a run's folder: its own trajectories, held-out runs, the cells of a comparison. Opens none. */
import { storeRoot } from '../trajectory/stores.ts'
import { type Html, html } from './html.ts'
import type { StoreName } from './sources.ts'
import type { StoreState } from './storePages.ts'
import { count, percent } from './words.ts'

export function storesBody(stores: readonly { name: StoreName; state: StoreState }[]): Html {
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

function storeRow({ name: { path, label }, state }: { name: StoreName; state: StoreState }): Html {
  const { trajectories, right, indexed, complete } = state
  const where = path === '' || path === label ? null : html`<span class="id">${path}</span>`
  return html`<tr>
<td class="question"><a href="${storeRoot(path)}">${label}</a>${where}</td>
<td data-name="Trajectories" class="number">${count(trajectories)}</td>
<td data-name="Right" class="number">${trajectories === 0 ? '–' : percent(right / trajectories)}</td>
<td data-name="State">${indexed < 1 ? `reading: ${Math.floor(indexed * 100)} %` : complete ? 'complete' : 'not complete'}</td>
</tr>`
}
