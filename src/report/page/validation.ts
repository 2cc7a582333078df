/** The part of the page about held-out questions that the policy answered while it was trained. */
import { settingChart } from '../charts/curves.ts'
import type { Validation } from '../gather.ts'
import { type MetricKey, metrics } from '../metrics.ts'
import type { Interval } from '../statistics.ts'
import { amount, figure, metricHead, paragraph, range, type Section, type Terms, table, whole } from './pieces.ts'

/** Keys of a record, and the metrics that they are. */
const COLUMNS: Record<string, MetricKey> = {
  grounded: 'groundingAnyVisited',
  formatRate: 'formatRate',
  turns: 'turns',
  meanTokens: 'sampledTokens',
  failures: 'failed',
}

export function validationSection(validations: readonly Validation[], terms: Terms): Section | null {
  if (validations.length === 0) return null
  const points = validations.map(({ step, accuracy, accuracyLow, accuracyHigh }) => {
    const ci95: Interval = [accuracyLow, accuracyHigh]
    return { x: step, y: accuracy, ci95 }
  })
  const shown = Object.entries(COLUMNS).filter(([key]) => validations.some((one) => one[key] !== undefined))
  const rows = validations.map((one) => [
    whole(one.step),
    {
      content: `${amount(one.accuracy, 'share')} (${range([one.accuracyLow, one.accuracyHigh], 'share')})`,
      title: metrics.accuracy.definition,
    },
    ...shown.map(([key, metric]) => ({
      content: one[key] === undefined ? '–' : written(key, one[key]),
      title: metrics[metric].definition,
    })),
  ])
  return {
    id: 'validation',
    title: 'Held-out questions while it was trained',
    body: [
      paragraph(
        `The same ${whole(validations.at(-1)?.n ?? 0)} questions at each visit, none of which is trained on. Whiskers: 95 % intervals, by episode. They chose the best checkpoint, so report its accuracy on other questions.`,
      ),
      figure(
        settingChart('validation', 'training steps so far', [{ label: 'held out', points }]),
        'Line chart of held-out accuracy by training step, with 95 % intervals',
      ),
      table(
        ['after step', ...metricHead(terms, ['accuracy', ...shown.map(([, metric]) => metric)])],
        rows,
        'Held-out accuracy',
      ),
    ].join('\n'),
  }
}

/** From the first visit to the last, and the best of those after training began. */
export function validationAnswer(validations: readonly Validation[]): string | null {
  const [first, last] = [validations[0], validations.at(-1)]
  if (first === undefined || last === undefined || first === last) return null
  const told = ({ step, accuracy, accuracyLow, accuracyHigh }: Validation) =>
    `${amount(accuracy, 'share')} (95 % interval ${range([accuracyLow, accuracyHigh], 'share')} %) after ${whole(step)} steps`
  const best = validations.slice(1).reduce((one, other) => (other.accuracy > one.accuracy ? other : one))
  const most = best === last ? 'the best so far' : `the best was ${told(best)}`
  return `On ${whole(last.n)} held-out questions: ${told(first)}, ${told(last)}; ${most}.`
}

function written(key: string, value: number): string {
  if (key === 'grounded' || key === 'formatRate') return amount(value, 'share')
  return key === 'failures' ? whole(value) : amount(value, 'number')
}
