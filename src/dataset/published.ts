/**
 * How large the published data sets are, to hold an imported one against. Sources: the README files of TVQA (rows, and episodes and clips
 * per show), TVQA+ and LongTVQA+.
 */
import type { DatasetMarker } from './layout.ts'

const ROWS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  TVQA: { train: 122_039, val: 15_253, test_public: 7_623, test_challenge: 7_630 },
  'TVQA+': { train: 23_545, val: 3_017, test: 2_821 },
  'LongTVQA+': { train: 23_545, val: 3_017 },
}

/** The names of clips give 74 episodes of met and 55 of grey, so that a whole data set has 924 episodes, not 925. */
const SHOWS: Readonly<Record<string, { episodes: number; clips: number }>> = {
  bbt: { episodes: 220, clips: 4_198 },
  friends: { episodes: 226, clips: 5_337 },
  met: { episodes: 72, clips: 1_512 },
  grey: { episodes: 58, clips: 1_472 },
  house: { episodes: 176, clips: 4_621 },
  castle: { episodes: 173, clips: 4_698 },
}

export interface Comparison {
  what: string
  here: number
  published: number
}

/** What is here of what was published, for splits and shows that were. */
export function comparePublished(
  { splits }: DatasetMarker,
  shows: Readonly<Record<string, { episodes: number; clips: number }>>,
): Comparison[] {
  const rows = Object.entries(splits).flatMap(([split, { formats, questions }]): Comparison[] => {
    const [format, another] = formats
    const published = format === undefined || another !== undefined ? undefined : ROWS[format]?.[split]
    return published === undefined ? [] : [{ what: `${format} questions of ${split}`, here: questions, published }]
  })
  const clips = Object.entries(shows).flatMap(([show, { episodes, clips }]): Comparison[] => {
    const published = SHOWS[show]
    if (!published) return []
    return [
      { what: `${show} episodes`, here: episodes, published: published.episodes },
      { what: `${show} clips`, here: clips, published: published.clips },
    ]
  })
  return [...rows, ...clips]
}
