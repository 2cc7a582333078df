/**
 * What the pages do in the browser: keys, following a run, saving labels, loading tokens, enlarging frames. Pages are whole without
 * it: everything here is a link or a form as well. Knows no data.
 */

/** @param {string} selector @param {ParentNode} [within] */
const all = (selector, within = document) => /** @type {HTMLElement[]} */ ([...within.querySelectorAll(selector)])
/** @param {string} selector */
const one = (selector) => /** @type {HTMLElement | null} */ (document.querySelector(selector))

// ---------------------------------------------------------------- keys

/** @type {Record<string, () => void>} */
const actions = {
  j: () => move(1),
  k: () => move(-1),
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  n: () => go('n'),
  p: () => go('p'),
  m: () => go('m'),
  u: () => go('u'),
  Escape: () => go('u'),
  g: () => one('#gold-toggle')?.click(),
  t: () => one('[data-loads]')?.click(),
  o: () => one('form[data-label] textarea')?.focus(),
  '/': () => {
    const search = /** @type {HTMLInputElement | null} */ (one('#search'))
    if (search) {
      search.focus()
      search.select()
    } else go('u')
  },
  '?': () => openDialog('help'),
}
for (const digit of ['1', '2', '3', '4', '5'])
  actions[digit] = () => all('form[data-label] input[type=checkbox]')[Number(digit) - 1]?.click()

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
  const target = /** @type {HTMLElement} */ (event.target)
  const typing = target.matches('textarea, select, input:not([type=checkbox]):not([type=radio])')
  if (typing) {
    if (event.key === 'Escape') target.blur()
    return
  }
  if (one('dialog[open]')) return
  // arrows belong to radio buttons
  if (target.matches('input') && event.key.startsWith('Arrow')) return
  // arrows scroll a trajectory, and move in a list
  if (event.key.startsWith('Arrow') && !one('table.list')) return
  const action = actions[event.key]
  if (!action) return
  event.preventDefault()
  action()
})

/** @param {string} key a page's address for a key */
function go(key) {
  const href = document.body.dataset[`key${key.toUpperCase()}`]
  if (href) location.assign(href)
}

/** The next row of a list, or the next turn. @param {number} step */
function move(step) {
  const stops = all('table.list td.question a, ol.turns > li')
  if (stops.length === 0) return
  const current = stops.findIndex((stop) => stop === document.activeElement || stop.contains(document.activeElement))
  const next = stops[current < 0 ? (step > 0 ? 0 : stops.length - 1) : Math.min(stops.length - 1, Math.max(0, current + step))]
  next?.focus({ preventScroll: true })
  next?.scrollIntoView({ block: next.matches('li') ? 'start' : 'center' })
}

// ---------------------------------------------------------------- dialogs

/** @param {string} id */
function openDialog(id) {
  const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById(id))
  dialog?.showModal()
}

document.addEventListener('click', (event) => {
  const target = /** @type {HTMLElement} */ (event.target)
  const opener = /** @type {HTMLElement | null} */ (target.closest('[data-opens]'))
  if (opener?.dataset.opens) openDialog(opener.dataset.opens)
  const enlarges = /** @type {HTMLAnchorElement | null} */ (target.closest('[data-enlarges]'))
  if (enlarges && !event.ctrlKey && !event.metaKey) {
    event.preventDefault()
    enlarge(enlarges)
  }
  const loads = /** @type {HTMLAnchorElement | null} */ (target.closest('[data-loads]'))
  if (loads) {
    event.preventDefault()
    void load(loads)
  }
  // a click beside a dialog closes it
  if (target instanceof HTMLDialogElement) target.close()
})

/** @param {HTMLAnchorElement} link */
function enlarge(link) {
  const picture = link.querySelector('img')
  const dialog = document.createElement('dialog')
  dialog.className = 'enlarged'
  dialog.setAttribute('aria-label', picture?.alt ?? 'Frame')
  const image = document.createElement('img')
  image.src = link.href
  image.alt = picture?.alt ?? ''
  const close = document.createElement('button')
  close.className = 'button'
  close.textContent = 'Close'
  close.addEventListener('click', () => dialog.close())
  dialog.append(image, close)
  dialog.addEventListener('close', () => dialog.remove())
  document.body.append(dialog)
  dialog.showModal()
}

/** Puts another page's part in the place of the link to it. @param {HTMLAnchorElement} link */
async function load(link) {
  const section = link.closest('section')
  const answer = await fetch(link.href)
  const part = new DOMParser().parseFromString(await answer.text(), 'text/html')
  const fragment = part.querySelector('#fragment') ?? part.querySelector('main')
  if (!fragment || !section) return
  link.closest('p')?.replaceWith(document.importNode(fragment, true))
  section.scrollIntoView({ block: 'start' })
  section.querySelector('input')?.focus({ preventScroll: true })
}

// ---------------------------------------------------------------- filters

const filters = /** @type {HTMLFormElement | null} */ (one('form[data-submits]'))
filters?.addEventListener('change', () => filters.requestSubmit())
filters?.addEventListener('submit', () => {
  // empty words stay out of the address
  for (const field of filters.elements) {
    const input = /** @type {HTMLInputElement} */ (field)
    if (input.name && input.value === '') input.disabled = true
  }
})
// fields that were left out come back with the page
addEventListener('pageshow', () => {
  for (const field of filters?.elements ?? []) /** @type {HTMLInputElement} */ (field).disabled = false
})

// ---------------------------------------------------------------- labels

const form = /** @type {HTMLFormElement | null} */ (one('form[data-label]'))
if (form) {
  const by = /** @type {HTMLInputElement} */ (form.elements.namedItem('by'))
  by.value = localStorage.getItem('labeller') ?? by.value
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    void save(form)
  })
  form.addEventListener('change', () => void save(form))
}

/** @param {HTMLFormElement} form */
async function save(form) {
  const data = new FormData(form)
  const by = String(data.get('by') ?? '')
  localStorage.setItem('labeller', by)
  const label = {
    trajectoryId: form.dataset.trajectory,
    kinds: data.getAll('kinds'),
    note: String(data.get('note') ?? '').trim(),
    by,
    goldShown: form.dataset.gold === '1',
  }
  const said = form.querySelector('.saved')
  const tell = (/** @type {string} */ text) => said && (said.textContent = text)
  try {
    const answer = await fetch(form.action, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(label),
    })
    if (!answer.ok) throw new Error(new DOMParser().parseFromString(await answer.text(), 'text/html').title)
    tell(label.kinds.length === 0 && label.note === '' ? 'No label' : 'Saved')
  } catch (error) {
    tell(`Not saved: ${error instanceof Error ? error.message : error}`)
  }
}

// ---------------------------------------------------------------- following a run

/** Asks for the page again and takes over the parts that follow the run. */
async function follow() {
  const wait = Number(document.body.dataset.followAfter)
  if (!wait) return
  await new Promise((resolve) => setTimeout(resolve, wait))
  if (document.visibilityState === 'hidden')
    await new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true }))
  try {
    const answer = await fetch(location.href)
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html')
    for (const part of all('[data-follow]')) {
      const newer = fresh.getElementById(part.id)
      if (newer && newer.innerHTML !== part.innerHTML) replace(part, newer)
    }
    document.body.dataset.followAfter = fresh.body.dataset.followAfter ?? ''
    for (const key of ['keyN', 'keyP']) {
      const href = fresh.body.dataset[key]
      if (href) document.body.dataset[key] = href
      else delete document.body.dataset[key]
    }
  } catch {
    // the viewer was stopped, or restarts: asked again
  }
  void follow()
}

/** Keeps the focus and what was unfolded. @param {HTMLElement} part @param {HTMLElement} newer */
function replace(part, newer) {
  const focused = part.contains(document.activeElement) ? document.activeElement?.getAttribute('href') : null
  const unfolded = all('details[open][id]', part).map(({ id }) => id)
  part.replaceChildren(...[...newer.childNodes].map((node) => document.importNode(node, true)))
  for (const id of unfolded) document.getElementById(id)?.setAttribute('open', '')
  if (focused) all('a[href]', part).find((link) => link.getAttribute('href') === focused)?.focus({ preventScroll: true })
}
void follow()
