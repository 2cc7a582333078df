/** `showrunner dataset miniature`, and the rendering of a configuration's miniature data sets: the renderer meets the encoder here. */
import { writeMiniature } from './dataset/miniature/write.ts'
import { type MiniatureOptions, miniatureOptions } from './dataset/options.ts'
import type { Progress } from './progress.ts'
import type { Result } from './types.ts'
import { encodeVideo } from './video/index.ts'

export interface RenderOptions {
  out: string
  miniature: Partial<MiniatureOptions>
  progress: Progress
  signal: AbortSignal
}

/** Renders what is not there yet and says so. */
export async function renderMiniature({ out, miniature, progress, signal }: RenderOptions): Promise<Result<void>> {
  const options = miniatureOptions.parse(miniature)
  progress.stage(`rendering ${out}`, options.episodes)
  const written = await writeMiniature({
    ...options,
    out,
    encode: encodeVideo,
    signal,
    onProgress: (done) => progress.to(done),
  })
  if (!written.ok) return written
  const { episodes, clips, questions, seconds } = written.value
  progress.to(options.episodes)
  progress.done(
    `${written.value.written ? '' : 'was there already: '}${episodes} episodes, ${clips} clips, ${questions} questions, ${Math.round(seconds)} s of video`,
  )
  return { ok: true, value: undefined }
}
