/** The report of `dataset inspect` as lines for a terminal. */
import { type DatasetReport, SHOWN } from './inspect.ts'
import type { Range } from './lengths.ts'

/** The 0.99 quantile of chi-squared with 4 degrees of freedom: from here on positions of answers are uneven at p < 0.01. */
const UNEVEN = 13.277

/** The report as lines for a terminal. */
export function formatReport(report: DatasetReport): string {
  const range = ({ min, median, max }: Range) =>
    `min ${min.toFixed(2)}, median ${median.toFixed(2)}, max ${max.toFixed(2)}`
  const percent = (x: number) => `${(100 * x).toFixed(1)} %`
  const { subtitles, pictures, leaks, lengths } = report
  const rows: [string, string][] = [
    ['data set', `${report.name} (${report.directory})`],
    ['question files', report.files.map(({ file, split, rows: n }) => `${file} (${split}, ${n} rows)`).join('; ')],
    [
      'questions',
      `${report.questions}, ${report.answered} with an answer, ${report.spans} with a time span${report.zeroLengthSpans > 0 ? ` (${report.zeroLengthSpans} of no length)` : ''}`,
    ],
    ...(report.boxes && report.boxes.boxes > 0
      ? [
          [
            'boxes',
            `${report.boxes.boxes} on ${report.boxes.pictures} pictures, for ${report.boxes.questions} questions`,
          ] as [string, string],
        ]
      : []),
    [
      'kinds',
      Object.entries(report.questionsPerKind)
        .filter(([, n]) => n > 0)
        .map(([kind, n]) => `${kind} ${n}`)
        .join(', ') || 'none',
    ],
    [
      'episodes',
      `${report.episodes} with ${report.clips} clips${report.hours === null ? ', durations unknown' : `, ${report.hours.toFixed(2)} hours`}`,
    ],
    [
      'clips per episode',
      `min ${report.clipsPerEpisode.min}, median ${report.clipsPerEpisode.median}, max ${report.clipsPerEpisode.max}`,
    ],
    ...(lengths
      ? ([
          [
            'episode minutes',
            `${range(lengths.episodeMinutes)}, in ${lengths.episodes} episodes with a timeline, ${report.doubleEpisodes} double episodes in all`,
          ],
          [
            'clip seconds',
            `${range(lengths.clipSeconds)}, mean ${lengths.clipSeconds.mean.toFixed(2)}, p95 ${lengths.clipSeconds.p95.toFixed(2)}; ${lengths.clipsOver60Seconds} of ${lengths.clips} above 60`,
          ],
          [
            'segments',
            `${lengths.segments}, ${lengths.segmentsWithGaps} with index gaps, ${lengths.segmentsNotFromZero} that begin after clip 0`,
          ],
        ] satisfies [string, string][])
      : []),
    [
      'shows',
      Object.entries(report.shows)
        .map(
          ([show, { episodes, clips, questions }]) =>
            `${show}: ${episodes} episodes, ${clips} clips, ${questions} questions`,
        )
        .join('; '),
    ],
    [
      'subtitles',
      `timed in ${subtitles.timed} clips, without times in ${subtitles.untimed}, missing in ${subtitles.missing}${some(subtitles.missingClips, subtitles.missing)}`,
    ],
    [
      'frames',
      `from video in ${pictures.video} clips, from folders in ${pictures.frames}, descriptions instead in ${pictures.descriptions}, missing in ${pictures.missing}`,
    ],
    ...(pictures.missingVideos.length > 0
      ? [
          [
            'video files missing',
            `${pictures.missingVideos.length}${some(pictures.missingVideos.slice(0, SHOWN), pictures.missingVideos.length)}`,
          ] as [string, string],
        ]
      : []),
    ['answers', report.answerPositions.map((n, i) => `a${i} ${n}`).join(', ')],
  ]
  const audit: [string, string][] = [
    [
      'option words in the question',
      leaks.optionInQuestion.n === 0
        ? 'in no question'
        : `in ${leaks.optionInQuestion.n} questions; choosing that option is right in ${percent(leaks.optionInQuestion.accuracy)}`,
    ],
    ['longest option', `choosing it is right in ${percent(leaks.longestOption.accuracy)} (chance 20.0 %)`],
    [
      'position',
      `always the most frequent one is right in ${percent(leaks.fixedPosition.accuracy)}; chi-squared ${leaks.positionChiSquared.toFixed(1)}, ${leaks.positionChiSquared >= UNEVEN ? 'uneven' : 'even'} at p = 0.01`,
    ],
    ['random clip', `holds the evidence in ${percent(leaks.randomClip.accuracy)}`],
    [
      'gold in what a policy sees',
      leaks.goldKeysInTasks.length === 0 ? 'none' : `LEAK: ${leaks.goldKeysInTasks.join(', ')}`,
    ],
    ['clips known from questions only', `in ${leaks.episodesKnownFromQuestionsOnly} of ${report.episodes} episodes`],
    ...leaks.sharedBetweenSplits.map(({ splits, sameQuestion, sameQid, sameEpisode }): [string, string] => [
      `shared by ${splits.join(' and ')}`,
      `${sameQuestion} questions, ${sameQid} qids, ${sameEpisode} episodes`,
    ]),
  ]
  const width = Math.max(...[...rows, ...audit].map(([name]) => name.length))
  const lines = (pairs: readonly [string, string][]) =>
    pairs.map(([name, value]) => `  ${name.padEnd(width)}  ${value}`)
  return [
    ...lines(rows),
    '',
    'Leak audit',
    ...lines(audit),
    ...(report.published.length > 0
      ? [
          '',
          'Of what was published',
          ...report.published.map(({ what, here, published }) => `  ${what}: ${here} of ${published}`),
        ]
      : []),
    ...(report.notes.length > 0 ? ['', 'Notes', ...report.notes.map((note) => `  ${note}`)] : []),
  ].join('\n')
}

function some(names: readonly string[], total: number): string {
  return names.length === 0 ? '' : ` (${names.join(', ')}${total > names.length ? ', ...' : ''})`
}
