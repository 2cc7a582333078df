/** Scene graphs behind a chat endpoint with image inputs: one picture per call, objects with boxes, attributes and relations out. */
import { z } from 'zod'
import type { Agent, SceneGraphAnswer, SceneGraphRequest } from '../types.ts'
import type { FrameReader } from '../video/index.ts'
import { askJson, type Behind } from './askEndpoint.ts'
import { failed } from './failure.ts'
import { furtherAgent, summed } from './furtherAgent.ts'
import { momentsAt } from './moments.ts'
import { type PictureOptions, picturesOf } from './pictures.ts'

const instructions = [
  'You list what stands in a picture. For each thing: a short label, its box as [left, top, width, height] in shares of the picture from 0 to 1, and what it is like.',
  'Then how things stand to each other, each thing by its label, numbered in the order of your list where several have one label: "cup 2".',
  'Reply with JSON alone: {"objects": [{"label": "cup", "box": [0.1, 0.5, 0.1, 0.2], "attributes": ["red"]}], "relations": [{"subject": "cup", "relation": "on", "object": "table"}]}',
].join('\n')

const share = z.number().min(0).max(1)
const reply = z.object({
  objects: z.array(
    z.object({
      label: z.string().min(1),
      box: z.tuple([share, share, share, share]),
      attributes: z.array(z.string()).default([]),
    }),
  ),
  relations: z.array(z.object({ subject: z.string(), relation: z.string(), object: z.string() })).default([]),
})

export function openSceneGraphEndpoint(
  behind: Behind,
  frames: FrameReader,
  options: PictureOptions,
): Agent<SceneGraphRequest, SceneGraphAnswer> {
  return furtherAgent('sceneGraph', `endpoint:${behind.model}`, async ({ episode, times }, { signal }) => {
    const moments = momentsAt(episode, times)
    if (!moments.ok) return moments
    const pictures = await picturesOf(moments.value, frames, options, signal)
    if (!pictures.ok) return pictures
    if (pictures.value.length === 0)
      return failed('agent', 'missing_file', `episode ${episode.id} has no pictures at the moments asked for`)
    const answers = await Promise.all(
      pictures.value.map(({ url }) =>
        askJson(
          behind,
          { agent: 'sceneGraph', instructions, pictures: [url], text: 'What stands in this picture?', signal },
          reply,
        ),
      ),
    )
    const scenes: SceneGraphAnswer['scenes'][number][] = []
    const usage = []
    for (const [index, answer] of answers.entries()) {
      if (!answer.ok) return answer
      scenes.push({ time: pictures.value[index]!.moment.at, ...answer.value.value })
      usage.push(answer.value.usage)
    }
    const seen = pictures.value.map(({ frame }) => frame)
    return { ok: true, value: { scenes, frames: seen, caveat: null, usage: summed(usage) } }
  })
}
