/**
 * Names of clips and episodes in TVQA and its relatives, and their order. Source: spec/longvideoagent.md, 2.1 and row 22.
 *
 * `castle_s01e24-25_seg02_clip_07`: an optional show prefix, season, one or two episodes, segment, clip. The Big Bang Theory has no
 * prefix in the data; its show is called `bbt` here, its episodes stay `s05e02`. Does not know which names exist.
 */

export interface ClipName {
  id: string
  episodeId: string
  show: string
  season: number
  /** First of the two numbers of a double episode. */
  episode: number
  segment: number
  clip: number
}

const EPISODE = /^(?:([a-z][a-z0-9]*)_)?s(\d{2})e(\d{2})(?:-(\d{2}))?$/
const CLIP = /^((?:[a-z][a-z0-9]*_)?s\d{2}e\d{2}(?:-\d{2})?)_seg(\d{2})_clip_(\d{2,3})$/

export const SHOW_WITHOUT_PREFIX = 'bbt'

/** What TVQA calls its shows in `show_name`, its misspelling included, and the prefix of each in names of clips. */
const SHOWS: ReadonlyMap<string, string> = new Map([
  ['the big bang theory', SHOW_WITHOUT_PREFIX],
  ['friends', 'friends'],
  ['how i met you mother', 'met'],
  ['how i met your mother', 'met'],
  ["grey's anatomy", 'grey'],
  ['house m.d.', 'house'],
  ['castle', 'castle'],
])

/** The show of a `show_name`; null for one that TVQA does not have. */
export function showOfTitle(title: string): string | null {
  return SHOWS.get(title.trim().toLowerCase()) ?? null
}

/** An example, for messages about a name that is none. */
export const CLIP_NAME_FORM = '[show_]s01e02[-03]_seg01_clip_00'

/** null when `id` is no clip name. */
export function parseClipName(id: string): ClipName | null {
  const match = CLIP.exec(id)
  const episode = match && parseEpisodeName(match[1] as string)
  if (!match || !episode) return null
  return { id, episodeId: match[1] as string, ...episode, segment: Number(match[2]), clip: Number(match[3]) }
}

/** null when `id` is no episode name. */
export function parseEpisodeName(id: string): { show: string; season: number; episode: number } | null {
  const match = EPISODE.exec(id)
  if (!match) return null
  return { show: match[1] ?? SHOW_WITHOUT_PREFIX, season: Number(match[2]), episode: Number(match[3]) }
}

/** Numeric (segment, clip) order within an episode. Both names must be clip names. */
export function compareClips(a: ClipName, b: ClipName): number {
  return a.segment - b.segment || a.clip - b.clip
}

/** By show, season, episode. Both names must be episode names. */
export function compareEpisodes(a: string, b: string): number {
  const [x, y] = [parseEpisodeName(a), parseEpisodeName(b)]
  if (!x || !y) throw new Error(`compareEpisodes: not episode names: ${a}, ${b}`)
  return (
    x.show.localeCompare(y.show, 'en') || x.season - y.season || x.episode - y.episode || (a < b ? -1 : a > b ? 1 : 0)
  )
}
