/**
 * The episode as a line of clips, and below it a lane per turn: which clips were in view, at what moments frames were looked at. With gold,
 * the span with the evidence is a band through all lanes. Times of clips are the data set's; without them all clips are equally long.
 */
import type { KeyedClip, KeyedQuestion } from '../trajectory/answerKey.ts'
import type { TrajectoryRow } from '../trajectory/schema.ts'
import type { Turn } from '../types.ts'
import { type Html, html } from './html.ts'
import { actionWords, chip, clipName, clock } from './words.ts'

interface Stretch {
  clip: KeyedClip
  /** Percent of the line. */
  left: number
  width: number
}

export function timeline(row: TrajectoryRow, clips: readonly KeyedClip[], gold: KeyedQuestion | null): Html {
  const end = Math.max(...clips.map((clip) => clip.end))
  const timed = end > 0
  const stretches = new Map(
    clips.map((clip, index): [string, Stretch] => [
      clip.id,
      timed
        ? { clip, left: (100 * clip.start) / end, width: (100 * (clip.end - clip.start)) / end }
        : { clip, left: (100 * index) / clips.length, width: 100 / clips.length },
    ]),
  )
  const goldStretch = gold?.clipId == null ? undefined : stretches.get(gold.clipId)
  const order = new Map(row.visited.map((id, index) => [id, index + 1]))
  return html`<div class="timeline">
<div class="lane line"><span class="lane-name">${timed ? clock(end) : `${clips.length} clips`}</span>
<span class="track">${[...stretches.values()].map((stretch) => clipMark(stretch, row, order, gold, timed))}${band(goldStretch, gold, timed, end)}</span></div>
${row.turns.map((turn, index) => lane(turn, index, row, stretches, goldStretch, gold, timed, end))}
</div>
<p class="legend">${clips.length} clips. <span class="swatch shown"></span> shown to the master, numbered in order. <span class="swatch in-view"></span> in view after the turn. <span class="swatch looked"></span> frame looked at.${
    gold?.clipId != null &&
    html` <span class="swatch gold"></span> evidence: ${clipName(gold.clipId, row.episodeId)}${gold.span !== null && html`, ${gold.span[0].toFixed(1)} to ${gold.span[1].toFixed(1)} s`}.`
  }</p>`
}

function clipMark(
  { clip, left, width }: Stretch,
  { episodeId }: TrajectoryRow,
  order: ReadonlyMap<string, number>,
  gold: KeyedQuestion | null,
  timed: boolean,
): Html {
  const place = order.get(clip.id)
  const kinds = ['clip', place !== undefined && 'visited', gold?.clipId === clip.id && 'gold'].filter(Boolean).join(' ')
  const when = timed ? `, ${clock(clip.start)} to ${clock(clip.end)}` : ''
  return html`<span class="${kinds}" style="left:${left.toFixed(3)}%;width:${width.toFixed(3)}%" title="${clipName(clip.id, episodeId)}${when}${place === undefined ? '' : `, shown as number ${place}`}">${place ?? ''}</span>`
}

function lane(
  turn: Turn,
  index: number,
  row: TrajectoryRow,
  stretches: ReadonlyMap<string, Stretch>,
  goldStretch: Stretch | undefined,
  gold: KeyedQuestion | null,
  timed: boolean,
  end: number,
): Html {
  const centre = turn.clipId === null ? undefined : stretches.get(turn.clipId)
  const view = centre === undefined ? [] : windowAround(centre, row.budget.windowClips, [...stretches.values()])
  const { name } = actionWords(turn.action.kind)
  const where = centre === undefined ? 'nothing in view' : `${clipName(centre.clip.id, row.episodeId)} in view`
  const frames = turn.frames.flatMap((frame) => {
    const stretch = stretches.get(frame.clipId)
    if (stretch === undefined) return []
    const length = stretch.clip.end - stretch.clip.start
    const within = timed && length > 0 ? (stretch.width * frame.time) / length : stretch.width / 2
    return [
      html`<span class="frame" style="left:${(stretch.left + Math.min(within, stretch.width)).toFixed(3)}%"></span>`,
    ]
  })
  return html`<div class="lane"><a class="lane-name" href="#turn-${index + 1}"><span class="unseen">Turn </span>${index + 1} ${chip(turn)}<span class="unseen">: ${name}; ${where}</span></a>
<span class="track" title="${where}">${view.map(({ left, width }) => html`<span class="view" style="left:${left.toFixed(3)}%;width:${width.toFixed(3)}%"></span>`)}${frames}${band(goldStretch, gold, timed, end)}</span></div>`
}

/** The clips in view (spec longvideoagent.md, section 5, row 12: for even w one more after the centre). */
function windowAround(centre: Stretch, width: number, all: readonly Stretch[]): readonly Stretch[] {
  const position = all.indexOf(centre)
  const before = Math.floor((width - 1) / 2)
  return all.slice(Math.max(0, position - before), position - before + width)
}

/** The evidence span; the whole clip where the data has no span. */
function band(stretch: Stretch | undefined, gold: KeyedQuestion | null, timed: boolean, end: number): Html | null {
  if (stretch === undefined || gold === null) return null
  const { clip, left, width } = stretch
  const [from, to] = gold.span !== null && timed ? gold.span : [0, Number.POSITIVE_INFINITY]
  const start = timed ? left + (100 * Math.min(from, clip.end - clip.start)) / end : left
  const stop = timed ? Math.min(left + (100 * to) / end, left + width) : left + width
  return html`<span class="band" style="left:${start.toFixed(3)}%;width:${Math.max(0.3, stop - start).toFixed(3)}%"></span>`
}
