/**
 * One self-contained page from what a run's folder holds: the question, the answer, then charts, and under each the same numbers as a
 * table. Needs no network and no script; reads in light and dark, on a phone and on paper. Measures nothing.
 */
import type { Report } from './gather.ts'
import { metrics } from './metrics.ts'
import {
  accuracyByGroup,
  failureSection,
  groundingSection,
  labelSection,
  stopSection,
  toolSection,
} from './page/behaviour.ts'
import { accuracySection, comparisonAnswer, costSection, differenceSection } from './page/compared.ts'
import { amount, escaped, type Section, Terms, table, whole } from './page/pieces.ts'
import { style } from './page/style.ts'
import {
  askedSection,
  heldOutAnswer,
  heldOutSection,
  patternSection,
  regroundingSection,
  trainingSection,
} from './page/trained.ts'
import { validationAnswer, validationSection } from './page/validation.ts'
import { ORACLE_NOTICE } from './summary.ts'

export function reportPage(report: Report): string {
  const { summary, compared, groups, training, validations, labels } = report
  const terms = new Terms()
  const sections = [
    compared && accuracySection(compared, terms),
    compared && differenceSection(compared, terms),
    compared && costSection(compared, terms),
    summary?.heldOut && heldOutSection(summary.heldOut, terms),
    validationSection(validations, terms),
    trainingSection(training, terms),
    summary?.actionPatterns && patternSection(summary.actionPatterns),
    summary?.regrounding && regroundingSection(summary.regrounding),
    !compared && !summary?.heldOut && groups.length > 0 && accuracyByGroup(groups, terms),
    groups.length > 0 && toolSection(groups, terms),
    groups.length > 0 && groundingSection(groups, terms),
    groups.length > 0 && stopSection(groups, terms),
    groups.length > 0 && failureSection(groups, report.directory, terms),
    labelSection(labels, report.directory),
    summary?.asked && askedSection(summary.asked),
    settingSection(report),
    methodSection(report, terms),
  ].filter((section): section is Section => typeof section === 'object' && section !== null)
  const title = `Showrunner: ${escaped(report.name)}`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>${style}</style>
</head>
<body>
<main>
<p class="kicker">${title}</p>
<h1>${escaped(questionOf(report))}</h1>
${answersTo(report)
  .map((answer) => `<p class="answer">${escaped(answer)}</p>`)
  .join('\n')}
${oracleNotice(report)}${tiles(report)}
<nav aria-label="Contents">${sections.map(({ id, title }) => `<a href="#${id}">${escaped(title)}</a>`).join('\n')}</nav>
${sections.map(({ id, title, body }) => `<section id="${id}">\n<h2>${escaped(title)}</h2>\n${body}\n</section>`).join('\n')}
</main>
</body>
</html>
`
}

/** A run with an oracle is not to be taken for one without. */
function oracleNotice({ oracleBoxes, compared }: Report): string {
  if (!oracleBoxes && compared?.sweep.setting['oracle boxes'] === undefined) return ''
  return `<p class="answer">${ORACLE_NOTICE}</p>\n`
}

/** What was asked, in a sentence. */
function questionOf({ summary, compared, training }: Report): string {
  const varied = compared?.sweep.varied.filter(({ values }) => values.length > 1) ?? []
  if (summary?.heldOut) return 'What did training teach the master, and how many turns does it need?'
  if (varied.length > 0) {
    const masters = varied.find(({ setting }) => setting === 'policy')?.values.map(String) ?? []
    const named = varied.flatMap(({ setting, values }) =>
      setting === 'policy' ? [] : [`${setting} (${values.join(', ')})`],
    )
    if (named.length === 0) return `Which master is more accurate: ${listed(masters, 'or')}?`
    return `How does accuracy change with ${listed(named, 'and')}${masters.length > 0 ? `, for ${listed(masters, 'and')}` : ''}?`
  }
  if (training.length > 1) return 'How did training go?'
  return 'How did these runs go?'
}

function answersTo({ summary, compared, groups, validations }: Report): string[] {
  const validated = validationAnswer(validations)
  const answers = [
    ...(summary?.heldOut ? [heldOutAnswer(summary.heldOut)] : []),
    ...(validated === null ? [] : [validated]),
    ...(compared ? [comparisonAnswer(compared), ...saturationAnswers(compared)] : []),
  ]
  const last = groups.at(-1)
  if (answers.length > 0 || !last?.metrics.accuracy) return answers
  const { value, ci95 } = last.metrics.accuracy
  const interval = ci95 === null ? '' : ` (95 % interval ${ci95.map((one) => (one * 100).toFixed(1)).join('–')} %)`
  return [`${amount(value, 'share')} of ${whole(last.n)} runs (${last.label}) were answered right${interval}.`]
}

/** `a, b and c`. */
function listed(words: readonly string[], last: 'and' | 'or'): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} ${last} ${words.at(-1)}`
}

/** Where curves stop rising; of several curves the first few. */
function saturationAnswers({ comparison }: NonNullable<Report['compared']>): string[] {
  return comparison.saturation
    .slice(0, 3)
    .map(
      ({ of, statement }) =>
        `${of ? `${of}: ` : ''}${of ? statement : statement.replace(/^./, (one) => one.toUpperCase())}.`,
    )
}

function tiles({ summary, compared, groups }: Report): string {
  const last = groups.at(-1)
  const all: [value: string, label: string][] = [
    ...(summary?.heldOut
      ? ([
          [amount(summary.heldOut.before.greedy.accuracy, 'share'), 'right before training, greedy'],
          [amount(summary.heldOut.after.greedy.accuracy, 'share'), 'right after training, greedy'],
        ] as [string, string][])
      : []),
    ...(compared
      ? ([
          [whole(compared.comparison.cells.length), 'settings compared'],
          [
            whole(compared.comparison.questions),
            `questions, of ${whole(compared.sweep.questions.of)}, in every setting`,
          ],
          [whole(compared.comparison.episodes), 'episodes'],
        ] as [string, string][])
      : []),
    ...(summary?.training
      ? ([
          [whole(summary.training.rollouts), `training rollouts in ${whole(summary.training.steps)} steps`],
          ...(summary.training.seconds === null
            ? []
            : [[`${(summary.training.seconds / 60).toFixed(1)} min`, 'of training']]),
        ] as [string, string][])
      : []),
    ...(!summary && !compared && last
      ? ([
          [whole(groups.reduce((sum, { n }) => sum + n, 0)), 'runs in these groups'],
          ...(last.metrics.turns ? [[amount(last.metrics.turns.value, 'number'), metrics.turns.label]] : []),
        ] as [string, string][])
      : []),
  ]
  const items = all.map(([value, label]) => `<li><b>${escaped(value)}</b><span>${escaped(label)}</span></li>`)
  return items.length > 0 ? `<ul class="tiles">${items.join('')}</ul>` : ''
}

function settingSection({ summary, compared, name, engines, setting }: Report): Section {
  const rows: [string, string][] = [['run', name]]
  const seen = new Set<string>()
  for (const [key, value] of [
    ...Object.entries(compared?.sweep.setting ?? {}),
    ...Object.entries(summary?.setting ?? {}),
    ...Object.entries(setting),
  ]) {
    if (!seen.has(key)) rows.push([key, String(value)])
    seen.add(key)
  }
  if (compared) {
    const { dataset, split, qids, of } = compared.sweep.questions
    rows.push([
      'questions',
      `${whole(qids.length)} of ${whole(of)} in ${dataset}${split === null ? '' : `, ${split}`}; their qids stand in sweep.json`,
    ])
  }
  if (engines.length > 0) rows.push(['engine in use', engines.join('; ')])
  if (summary && !seen.has('seed')) rows.push(['seed', String(summary.seed)])
  if (summary?.training) rows.push(['sampled tokens', whole(summary.training.sampledTokens)])
  return { id: 'setting', title: 'Setting', body: table([], rows, 'Setting of the run') }
}

const METHODS: Record<string, string> = {
  intervals: 'Intervals',
  differences: 'Differences',
  questionsNeeded: 'Questions needed',
  saturation: 'Where a curve stops rising',
  pareto: 'Pareto set',
  failures: 'Failures',
}

/** How the numbers come about, and what each word means. */
function methodSection({ compared }: Report, terms: Terms): Section {
  const methods = Object.entries(compared?.comparison.methods ?? {}).map(
    ([of, text]) => `<li><strong>${escaped(METHODS[of] ?? of)}</strong>: ${escaped(text)}</li>`,
  )
  const body = `${methods.length > 0 ? `<ul class="findings">${methods.join('')}</ul>` : ''}${terms.glossary()}`
  return { id: 'definitions', title: 'Definitions and methods', body }
}
