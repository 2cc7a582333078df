/**
 * How fast and how right the embedded vision agent's nets are on the pictures of the miniature data set, one thread, before H.264.
 * Prints one JSON line per picture size: milliseconds of processor time per frame (medians), resident memory, and the share of
 * pictures whose sign, panel colour, object and count were all named right, each on its own. Run with `npx tsx bench/perception.ts [pictures]`.
 */

import { fileURLToPath } from 'node:url'
import sharp from 'sharp'
import { panelColour } from '../src/agents/colours.ts'
import { openDetector } from '../src/agents/detector.ts'
import { loadGraphModel } from '../src/agents/graphModel.ts'
import { openTextReader } from '../src/agents/ocr.ts'
import { composePicture, loadMaterial, PICTURE } from '../src/dataset/miniature/picture.ts'
import { tellStory } from '../src/dataset/miniature/story.ts'

const pictures = Number(process.argv[2] ?? 32)
const weights = fileURLToPath(new URL('../src/agents/weights/nanodet.json', import.meta.url))
const readText = await openTextReader()
const detect = await openDetector(await loadGraphModel(weights, { cacheDirectory: null }))
const material = await loadMaterial()
const scenes = Array.from(
  { length: Math.ceil(pictures / 8) },
  (_, episode) => tellStory({ seed: 'bench', episode, words: 'all', questionsPerEpisode: 1, decoyRate: 0.2 }).clips,
)
  .flat()
  .slice(0, pictures)
  .map(({ scene }) => scene)

for (const [width, height] of [
  [384, 216],
  [640, 360],
] as const) {
  const times = { text: [] as number[], objects: [] as number[] }
  const right = { sign: 0, color: 0, object: 0, count: 0 }
  for (const [index, scene] of scenes.entries()) {
    const whole = await composePicture(scene, `bench/${index}`, material)
    const raw = { width: PICTURE.width, height: PICTURE.height, channels: 3 as const }
    const picture = {
      width,
      height,
      data: await sharp(whole, { raw }).resize(width, height, { fit: 'cover' }).raw().toBuffer(),
    }
    const [lines] = await timed(times.text, () => readText([picture], 0.7))
    const objects = await timed(times.objects, () => detect(picture, 0.4))
    if (lines?.length === 1 && lines[0]?.text.toLowerCase() === scene.sign) right.sign++
    if (lines?.[0] && panelColour(picture, lines[0].box) === scene.color) right.color++
    if (objects.length > 0 && objects.every(({ label }) => label === scene.object)) right.object++
    if (objects.filter(({ label }) => label === scene.object).length === scene.count) right.count++
  }
  const share = Object.fromEntries(Object.entries(right).map(([name, count]) => [name, count / scenes.length]))
  const milliseconds = { text: median(times.text), objects: median(times.objects) }
  console.log(
    JSON.stringify({
      bench: 'perception',
      width,
      height,
      pictures: scenes.length,
      milliseconds,
      right: share,
      rssMb: Math.round(process.memoryUsage().rss / 1e6),
    }),
  )
}

async function timed<T>(into: number[], work: () => Promise<T>): Promise<T> {
  const begin = process.cpuUsage()
  const result = await work()
  const { user, system } = process.cpuUsage(begin)
  into.push((user + system) / 1000)
  return result
}

function median(values: readonly number[]): number {
  return Math.round([...values].sort((a, b) => a - b)[values.length >> 1]! * 10) / 10
}
