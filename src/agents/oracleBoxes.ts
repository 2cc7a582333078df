/**
 * An oracle for comparison with the released code: the boxes that annotators drew stand in front of what the vision agent says. They
 * are gold: their labels name what question and answer are about (spec longvideoagent.md, section 1.7, row 20). Only
 * `agents.oracleBoxes` opens it, and the runs that had it say so.
 */
import type { Clip, VisionAgent } from '../types.ts'

/** One box of a clip. Pixels of a 640 x 360 picture, shown at `time` seconds of the clip. */
export interface MarkedBox {
  time: number
  label: string
  left: number
  top: number
  width: number
  height: number
}

/** Boxes by clip. */
export type MarkedBoxes = ReadonlyMap<string, readonly MarkedBox[]>

export function withOracleBoxes(agent: VisionAgent, boxes: MarkedBoxes): VisionAgent {
  return {
    name: `${agent.name} with oracle boxes`,
    async look(request, options) {
      const answer = await agent.look(request, options)
      if (!answer.ok) return answer
      const lines = request.clips.flatMap((clip) => marked(clip, boxes))
      return { ok: true, value: { ...answer.value, text: [...lines, answer.value.text].join('\n') } }
    },
  }
}

/** A line per picture, in the order of time. */
function marked({ id }: Clip, boxes: MarkedBoxes): string[] {
  const byTime = new Map<number, string[]>()
  for (const { time, label, left, top, width, height } of [...(boxes.get(id) ?? [])].sort((a, b) => a.time - b.time))
    byTime.set(time, [...(byTime.get(time) ?? []), `${label} at ${left} ${top} ${width} ${height}`])
  return [...byTime].map(([time, things]) => `box ${time.toFixed(1)} s : ${things.join(' , ')}`)
}
