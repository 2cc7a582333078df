/**
 * Follows the folder of a run whose trainer is elsewhere: loads each newer checkpoint once it is whole (its training state is written last)
 * and hands it over. Looks at names and times only between loads; never writes.
 */
import { type Checkpoint, latestCheckpoint, loadCheckpoint } from '../checkpoint/checkpoint.ts'
import type { Result } from '../types.ts'

export interface Watch {
  /** Resolves when nothing is being loaded any more. */
  stop(): Promise<void>
}

export interface WatchCallbacks {
  take(step: number, directory: string, checkpoint: Checkpoint): Promise<Result<void>>
  log(line: string): void
}

/** Checkpoints after `step`, looked for every so many seconds. One that cannot be loaded is told once and left out. */
export function watchCheckpoints(
  directory: string,
  step: number,
  everySeconds: number,
  { take, log }: WatchCallbacks,
): Watch {
  let newest = step
  let timer: NodeJS.Timeout | null = null
  let stopped = false
  let looking: Promise<void> = Promise.resolve()

  const look = async () => {
    const found = await latestCheckpoint(directory)
    if (found === null || found.step <= newest) return
    newest = found.step
    const loaded = await loadCheckpoint(found.directory)
    const taken = loaded.ok ? await take(found.step, found.directory, loaded.value) : loaded
    if (!taken.ok) log(`not served: ${taken.failure.message}`)
  }
  const next = () => {
    if (stopped) return
    timer = setTimeout(() => {
      looking = look()
        .catch((error) => log(`watching ${directory}: ${(error as Error).message}`))
        .finally(next)
    }, everySeconds * 1000)
  }
  next()
  return {
    async stop() {
      stopped = true
      if (timer) clearTimeout(timer)
      await looking
    },
  }
}
