/** Files of an imported data set, as the importer wrote them. Does not check values: what the importer wrote is what it reads. */
import { join } from 'node:path'
import type { Result } from '../types.ts'
import { failed, fileFailure } from './failure.ts'
import { readOrNull } from './files.ts'
import { isObject, tryParse } from './json.ts'
import { type DatasetMarker, LAYOUT, LAYOUT_VERSION, paths } from './layout.ts'
import { readItems } from './stream.ts'

/** null when the folder holds no imported data set. Fails for an unfinished import, and for one by another version. */
export async function readMarker(directory: string): Promise<Result<DatasetMarker | null>> {
  const to = paths(directory)
  try {
    const text = await readOrNull(to.marker)
    if (text === null) {
      const plan = await readOrNull(join(to.work, 'plan.json'))
      return plan === null
        ? { ok: true, value: null }
        : failed(
            'bad_file',
            `${directory}: this import is unfinished; run the same \`showrunner dataset import\` again`,
          )
    }
    const parsed = tryParse(text)
    // the miniature data set has a marker of the same name
    if (!parsed.ok || !isObject(parsed.value) || parsed.value.layout !== LAYOUT) return { ok: true, value: null }
    const marker = parsed.value as unknown as DatasetMarker
    if (marker.version === LAYOUT_VERSION) return { ok: true, value: marker }
    return failed(
      'bad_file',
      `${to.marker}: layout version ${marker.version}, expected ${LAYOUT_VERSION}; import the data set again`,
    )
  } catch (error) {
    return fileFailure(to.marker, error)
  }
}

/** The lines of a file as they were written; ends after the first failure. */
export async function* readLines<Line>(path: string): AsyncGenerator<Result<Line>> {
  for await (const item of readItems(path, 'lines')) {
    yield item.ok ? { ok: true, value: item.value.value as Line } : item
  }
}
