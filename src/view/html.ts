/** Pages as text: a template tag that escapes whatever it is given, and the frame that all pages share. Knows no data. */

/** Text that is markup already. */
export class Html {
  constructor(readonly text: string) {}
}

export type Part = Html | string | number | null | false | readonly Part[]

/** Everything interpolated is escaped, unless it is `Html`; lists are joined, null and false are nothing. */
export function html(texts: TemplateStringsArray, ...parts: Part[]): Html {
  return new Html(texts.reduce((all, text, index) => all + rendered(parts[index - 1] ?? null) + text))
}

/** Markup from elsewhere, such as a chart, as it is. */
export function markup(text: string): Html {
  return new Html(text)
}

function rendered(part: Part): string {
  if (part === null || part === false) return ''
  if (part instanceof Html) return part.text
  if (Array.isArray(part)) return part.map(rendered).join('')
  return escaped(String(part))
}

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (letter) => ENTITIES[letter] ?? letter)
}

export interface Frame {
  /** The run's name, with that of the store where there are several. */
  run: string
  /** Under which address the pages of the store lie; addresses in `body`, `gold` and `keys` begin with / and are moved there, save those of other stores, `/in/...`. */
  root: string
  /** Whether the folder has other stores to go to. */
  several: boolean
  /** No store lies at `root`: there is only the list of stores. */
  storeless?: boolean
  title: string
  /** Which entry of the navigation this page is. */
  tab: 'trajectories' | 'training' | 'stores' | null
  /** Whether gold is shown, and this page's address with and without it. */
  gold: { shown: boolean; toggle: string } | null
  /** Addresses for keys, such as the next page. */
  keys?: Record<string, string | null>
  /** Milliseconds after which what follows the run (`data-follow`) is asked for again; null: it will not change. */
  followAfter: number | null
  body: Html
}

export function page({
  run,
  root,
  several,
  storeless = false,
  title,
  tab,
  gold,
  keys = {},
  followAfter,
  body,
}: Frame): string {
  const suffix = gold?.shown ? '?gold=1' : ''
  const entry = (name: Frame['tab'], href: string, text: string) =>
    html`<a href="${href}"${tab === name && markup(' aria-current="page"')}>${text}</a>`
  const data = Object.entries(keys).map(([key, href]) => href !== null && html` data-key-${key}="${href}"`)
  const { text } = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} · ${run}</title>
<link rel="icon" href="/assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/assets/style.css">
<script type="module" src="/assets/client.js"></script>
</head>
<body${data}${followAfter !== null && html` data-follow-after="${followAfter}"`}>
<a class="skip" href="#main">Skip to the content</a>
<header class="top">
<span class="run">${run}</span>
<nav aria-label="Pages">${[
    !storeless && entry('trajectories', `/${suffix}`, 'Trajectories'),
    !storeless && entry('training', `/training${suffix}`, 'Live'),
    html`<a href="/report">Report</a>`,
    several && entry('stores', '/stores', 'Stores'),
  ]}</nav>
<span class="tools">
${
  gold !== null &&
  html`<a class="button gold-toggle" id="gold-toggle" href="${gold.toggle}" aria-keyshortcuts="g">${gold.shown ? 'Hide gold' : 'Show gold'} <kbd>g</kbd></a>`
}
<button type="button" class="button" data-opens="help" aria-keyshortcuts="?" aria-label="Keys">?</button>
</span>
</header>
<main id="main">
${body}
</main>
${help}
</body>
</html>
`
  // texts are escaped, so that a quote only ever ends an attribute
  return root === '/' ? text : text.replace(/ (href|src|action|data-key-[a-z])="\/(?!in\/)/g, ` $1="${root}`)
}

const KEYS: readonly [string, string][] = [
  ['j / k', 'next, previous row; in a trajectory: next, previous turn'],
  ['Enter', 'open the row'],
  ['n / p', 'next, previous page; in a trajectory: next, previous trajectory of the list'],
  ['/', 'search'],
  ['g', 'show or hide gold: the right answer, rewards, what was right'],
  ['m', 'next run of the same question'],
  ['t', 'tokens'],
  ['1 … 5', 'mark: grounding, vision, reasoning, question, other'],
  ['o', 'write a note'],
  ['u or Esc', 'back to the list'],
  ['?', 'this help'],
]

const help = html`<dialog id="help" aria-labelledby="help-title">
<h2 id="help-title">Keys</h2>
<dl class="keys">${KEYS.map(([key, meaning]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${meaning}</dd></div>`)}</dl>
<form method="dialog"><button class="button">Close</button></form>
</dialog>`
