/** How the page looks: Okabe & Ito's palette, lighter on dark paper; one column, also on a phone and on paper. */

const light = `--paper: #ffffff; --ink: #1c1f23; --soft: #585f67; --faint: #c9ced4; --wash: #f3f5f7; --blue: #0072b2; --orange: #b85000; --green: #007a57; --purple: #a8467a; --fifth: #3a3f46; --sixth: #7a6a00; --grey: #6b7178;`
const dark = `--paper: #16181b; --ink: #e6e8eb; --soft: #a9b0b8; --faint: #42474e; --wash: #1f2226; --blue: #56b4e9; --orange: #f0a04b; --green: #3cc79b; --purple: #e09ac0; --fifth: #f0e442; --sixth: #c8cdd3; --grey: #8d949c;`

export const style = `
:root { ${light} }
@media (prefers-color-scheme: dark) { :root { ${dark} } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 12px; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 32px 20px 64px; }
.kicker { color: var(--soft); font-size: 0.9rem; margin: 0; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 2px 0 14px; overflow-wrap: anywhere; text-wrap: balance; }
h2 { font-size: 1.25rem; line-height: 1.25; margin: 52px 0 6px; padding-top: 14px; border-top: 1px solid var(--faint); }
h3 { font-size: 1rem; margin: 22px 0 2px; }
p { margin: 4px 0 12px; max-width: 46em; }
a { color: var(--blue); }
.answer { font-size: 1.1rem; }
ul.findings { margin: 4px 0 12px; padding-left: 1.2em; max-width: 46em; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(118px, 1fr)); gap: 10px; margin: 18px 0 6px; padding: 0; list-style: none; }
.tiles li { background: var(--wash); border-radius: 8px; padding: 10px 14px; }
.tiles b { display: block; font-size: 1.5rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 0.85rem; }
nav { margin: 18px 0 0; display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 0.9rem; }
figure { margin: 10px 0 0; }
svg { display: block; width: 100%; height: auto; }
.narrow { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: 0 20px; margin: 0 0 6px; padding: 0; list-style: none; font-size: 0.875rem; }
.legend svg { display: inline-block; width: 28px; height: 12px; margin-right: 6px; }
.panels { display: grid; grid-template-columns: 1fr 1fr; gap: 18px 20px; }
.panels h3 { margin-top: 10px; }
.scroll { overflow-x: auto; margin-top: 10px; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 4px 0; white-space: nowrap; }
th, td { padding: 4px 12px 4px 0; text-align: right; border-bottom: 1px solid var(--faint); white-space: nowrap; vertical-align: top; }
thead th { vertical-align: bottom; color: var(--soft); font-weight: 500; white-space: normal; }
th { font-weight: 600; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); white-space: normal; min-width: 8em; }
tbody tr:hover, tbody tr:hover th { background: var(--wash); }
td small { color: var(--soft); display: block; font-size: 0.75rem; }
.properties td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
td.words { text-align: left; white-space: normal; min-width: 16em; }
.mark { color: var(--green); font-weight: 700; }
button.term { all: unset; cursor: help; border-bottom: 1px dotted currentColor; }
button.term:focus-visible, a:focus-visible, summary:focus-visible { outline: 2px solid var(--blue); outline-offset: 2px; border-radius: 2px; }
[popover] { max-width: min(26em, 90vw); padding: 12px 16px; border: 1px solid var(--faint); border-radius: 8px; background: var(--paper); color: var(--ink); font-size: 0.9rem; box-shadow: 0 6px 24px rgb(0 0 0 / 25%); }
details { margin: 8px 0; }
summary { cursor: pointer; }
code { font: 0.85em ui-monospace, monospace; background: var(--wash); padding: 1px 4px; border-radius: 4px; overflow-wrap: anywhere; }
pre { background: var(--wash); padding: 8px 12px; border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; font: 0.85em ui-monospace, monospace; margin: 6px 0; }
dl.terms { display: grid; grid-template-columns: minmax(8em, auto) 1fr; gap: 6px 18px; font-size: 0.9rem; }
dl.terms dt { font-weight: 600; }
dl.terms dd { margin: 0; max-width: 44em; }
.warning { border-left: 4px solid var(--orange); padding: 6px 12px; background: var(--wash); max-width: 46em; }
@media screen and (max-width: 640px) {
  main { padding: 20px 14px 48px; }
  .wide { display: none; } .narrow { display: block; }
  .panels { grid-template-columns: 1fr; }
  dl.terms { grid-template-columns: 1fr; gap: 2px; } dl.terms dd { margin-bottom: 8px; }
}
@media print {
  :root { ${light} --ink: #000000; }
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  nav, .screen { display: none; }
  figure, tr, p, li, .tiles, .panels > * { break-inside: avoid; }
  h2, h3, caption, section > p { break-after: avoid; }
  .scroll { overflow: visible; }
  table { font-size: 8pt; } th, td { padding-right: 8px; }
}
`
