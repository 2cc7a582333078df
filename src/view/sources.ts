/** What the viewer needs from outside its room: handed in by whoever opens it, each null where it is not at hand. */
import type { KeyedClip, KeyedQuestion } from '../trajectory/answerKey.ts'
import type { Result, SeenPicture } from '../types.ts'

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
  tokens: Result<(ids: readonly number[]) => readonly string[]>
  /** Steps that the run's configuration plans. */
  plannedSteps: number | null
  /** Makes the run's report and returns its path. */
  report(): Promise<Result<string>>
  /** Who labels, unless they say otherwise. */
  labeller: string
}
