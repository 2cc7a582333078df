/** What the viewer needs from outside its room: handed in by whoever opens it, each null where it is not at hand. */
import type { KeyedClip, KeyedQuestion } from '../trajectory/answerKey.ts'
import type { Result, SeenPicture } from '../types.ts'
import type { RunIndex } from './runIndex.ts'

/** A run's folder. It may hold several stores: its own, held-out runs, the cells of a comparison. */
export interface ViewedFolder {
  name: string
  /** Looked for anew each time, since a comparison adds cells as it goes. */
  stores(): Promise<StoreName[]>
  open(path: string): Promise<Result<ViewedStore>>
  /** Makes the report of the folder and returns its path. */
  report(): Promise<Result<string>>
}

export interface StoreName {
  /** From the folder; `''` is the folder itself. */
  path: string
  /** For the reader, such as the settings of a cell. */
  label: string
}

export interface ViewedStore {
  index: RunIndex
  sources: ViewSources
}

export interface ViewSources {
  /** The clips of an episode, in order. */
  clips(episodeId: string): readonly KeyedClip[] | null
  /** Asked for only when gold is to be shown. */
  gold(qid: string): KeyedQuestion | null
  /** The same picture that the vision agent saw, as a file that browsers show. */
  picture(picture: SeenPicture): Promise<Result<{ bytes: Uint8Array; type: string }>>
  /** Whether the file is still the one that was looked at. */
  unchanged(picture: SeenPicture): Promise<boolean>
  /** The text of each id; a failure says why there is no tokenizer. */
  tokens(): Promise<Result<(ids: readonly number[]) => readonly string[]>>
  /** Steps that the run's configuration plans. */
  plannedSteps: number | null
  /** Who labels, unless they say otherwise. */
  labeller: string
}
