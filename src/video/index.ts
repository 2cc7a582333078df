/** The video room's door: what other rooms use of it. */

export type { EncodeOptions } from './encode.ts'
export { encodeVideo } from './encode.ts'
export type { Ffmpeg } from './ffmpeg.ts'
export { locateFfmpeg } from './ffmpeg.ts'
export type { FrameReader, FrameRequest } from './frameCache.ts'
export { openFrameReader } from './frameCache.ts'
export type { Frame, ReadOptions } from './frames.ts'
export { framesAt, uniformTimes } from './frames.ts'
export type { VideoOptions } from './options.ts'
export { videoOptions } from './options.ts'
export type { MediaFacts } from './probe.ts'
export { probe } from './probe.ts'
