/** What an import did, as data and as lines for a terminal. */
import type { SplitCounts } from '../layout.ts'
import type { Effect, Finding } from './findings.ts'

/** `import-report.json`. */
export interface ImportReport {
  /** The JSON files that were read, in that order; of question files also how many rows became questions. */
  inputs: { path: string; kind: string; split?: string | null; format?: string | null; rows?: number; kept?: number }[]
  subtitleFiles: number
  frameFolders: number
  videos: number
  /** What was found in the folders given and not read. */
  unused: { path: string; why: string }[]
  splits: Record<string, SplitCounts>
  /** `timed`: with the durations of all their clips known. */
  episodes: { written: number; timed: number; clips: number }
  /** By reason, with the first examples. */
  findings: Finding[]
}

const HEADINGS: Record<Effect, string> = { dropped: 'Dropped', changed: 'Changed', noted: 'Noted' }
const UNUSED_SHOWN = 10

export function formatImportReport(report: ImportReport): string {
  const { episodes, inputs, splits, unused, findings } = report
  const lines = [
    'Read',
    ...inputs.map(({ path, kind, split, format, rows, kept }) =>
      rows === undefined
        ? `  ${path}: ${kind}`
        : `  ${path}: ${format} questions (${split}), ${kept} of ${rows} rows kept`,
    ),
    ...count(report.subtitleFiles, 'subtitle files'),
    ...count(report.frameFolders, 'frame folders'),
    ...count(report.videos, 'videos'),
    'Written',
    `  ${episodes.written} episodes with ${episodes.clips} clips, ${episodes.timed} episodes with a timeline`,
    ...Object.entries(splits).map(
      ([split, { questions, answered, spans, boxes, framesWithBoxes }]) =>
        `  ${split}: ${questions} questions, ${answered} with an answer, ${spans} with a time span${boxes > 0 ? `, ${boxes} boxes on ${framesWithBoxes} pictures` : ''}`,
    ),
  ]
  for (const effect of Object.keys(HEADINGS) as Effect[]) {
    const mine = findings.filter((finding) => finding.effect === effect)
    if (mine.length === 0) continue
    lines.push(HEADINGS[effect])
    for (const finding of mine) {
      lines.push(`  ${String(finding.count).padStart(7)}  ${finding.meaning}`)
      for (const { where, detail } of finding.examples) lines.push(`           ${where}: ${detail}`)
    }
  }
  if (unused.length > 0)
    lines.push('Not read', ...unused.slice(0, UNUSED_SHOWN).map(({ path, why }) => `  ${path}: ${why}`))
  if (unused.length > UNUSED_SHOWN) lines.push(`  ... and ${unused.length - UNUSED_SHOWN} more, see import-report.json`)
  return lines.join('\n')
}

function count(n: number, what: string): string[] {
  return n > 0 ? [`  ${n} ${what}`] : []
}
