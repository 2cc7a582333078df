/** Opens a data set: an imported one (`imported.ts`), or files as they were published (`raw.ts`). Does not decode video and does not draw samples. */
import type { Result } from '../types.ts'
import type { Dataset, OpenOptions } from './dataset.ts'
import { openImported } from './imported.ts'
import { readMarker } from './lines.ts'
import { openRaw } from './raw.ts'

/**
 * Reads the data set in `directory`. Fails with `missing_file` (folder, split) or `bad_file` naming file, row and qid: empty file,
 * wrong JSON, an unfinished import, a row without an option, an unknown clip, two different rows with one qid.
 */
export async function openDataset(directory: string, { split }: OpenOptions = {}): Promise<Result<Dataset>> {
  const marker = await readMarker(directory)
  if (!marker.ok) return marker
  return marker.value ? openImported(directory, marker.value, split ?? null) : openRaw(directory, split ?? null)
}
