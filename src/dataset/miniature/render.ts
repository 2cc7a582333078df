/**
 * The pictures of one episode, frame by frame: a still per clip, over which the camera slowly wanders.
 *
 * Deterministic. Does not encode and does not write files.
 */
import { composePicture, FRAME, PICTURE, type PictureMaterial, WANDER } from './picture.ts'
import { Dice, type Story } from './story.ts'

export const FRAMES_PER_SECOND = 8
/** About five seconds a clip. */
const CLIP_FRAMES = { shortest: 36, longest: 44 }

export interface ClipSpan {
  /** Seconds on the episode's timeline, on frame boundaries. */
  start: number
  end: number
}

/** When each clip of a story plays. */
export function clipSpans(story: Story, seed: string): ClipSpan[] {
  let end = 0
  return clipFrames(story, seed).map((frames) => {
    const start = end
    end += frames / FRAMES_PER_SECOND
    return { start, end }
  })
}

function clipFrames(story: Story, seed: string): number[] {
  const dice = new Dice(`length/${seed}/${story.episodeId}`)
  return story.clips.map(() => CLIP_FRAMES.shortest + dice.below(CLIP_FRAMES.longest - CLIP_FRAMES.shortest + 1))
}

/** Every frame of the episode: `FRAME.height * FRAME.width * 3` bytes of rgb24 each. */
export async function* renderEpisode(
  story: Story,
  seed: string,
  material: PictureMaterial,
): AsyncGenerator<Uint8Array> {
  const lengths = clipFrames(story, seed)
  const compose = (i: number) => {
    const clip = story.clips[i]
    const picture = clip && composePicture(clip.scene, `${seed}/${clip.id}`, material)
    picture?.catch(() => undefined) // awaited in its turn; without this, a failure meanwhile would end the process
    return picture
  }
  // The next picture is composed while this one is shown: the encoder need not wait.
  let next = compose(0)
  for (const [i, clip] of story.clips.entries()) {
    const picture = (await next) as Buffer
    next = compose(i + 1)
    const dice = new Dice(`camera/${seed}/${clip.id}`)
    const phase = { x: 2 * Math.PI * dice.uniform(), y: 2 * Math.PI * dice.uniform() }
    const length = lengths[i] as number
    for (let frame = 0; frame < length; frame++) {
      const turn = (2 * Math.PI * frame) / length
      yield crop(picture, WANDER.x * (1 + Math.sin(turn + phase.x)), WANDER.y * (1 + Math.cos(turn + phase.y)))
    }
  }
}

/** The frame whose upper left corner is at (left, top) of the picture. */
function crop(picture: Buffer, left: number, top: number): Buffer {
  const frame = Buffer.allocUnsafe(FRAME.width * FRAME.height * 3)
  const [x, y] = [Math.round(left), Math.round(top)]
  for (let row = 0; row < FRAME.height; row++) {
    const from = ((y + row) * PICTURE.width + x) * 3
    picture.copy(frame, row * FRAME.width * 3, from, from + FRAME.width * 3)
  }
  return frame
}
