/**
 * Ctrl-C: the first asks the running command to stop where nothing is lost, the second ends the process at once.
 * What "stop" means is up to whoever reads the signal.
 */
import { setMaxListeners } from 'node:events'

/** One press arrives several times: from the terminal, from npm, and from the launcher, within a few milliseconds. */
const SAME_PRESS_MS = 300

export interface Interrupt {
  /** Aborted by the first SIGINT or SIGTERM. */
  signal: AbortSignal
  /** Stops listening. */
  release(): void
}

export function onInterrupt(): Interrupt {
  const controller = new AbortController()
  // everything that is asked at the same time listens to it
  setMaxListeners(0, controller.signal)
  let last = Number.NEGATIVE_INFINITY
  const handle = (name: NodeJS.Signals) => {
    const now = performance.now()
    if (now - last < SAME_PRESS_MS) return
    last = now
    if (controller.signal.aborted) return die(name)
    process.stderr.write('\nStopping; what is stored stays. Ctrl-C again stops at once.\n')
    controller.abort(new Error('stopped by Ctrl-C'))
  }
  /** By the signal's own default: `process.exit` would wait for worker threads, or abort inside them. Shells see 130 for SIGINT. */
  const die = (name: NodeJS.Signals) => {
    release()
    process.kill(process.pid, name)
  }
  const release = () => {
    process.off('SIGINT', handle)
    process.off('SIGTERM', handle)
  }
  process.on('SIGINT', handle)
  process.on('SIGTERM', handle)
  return { signal: controller.signal, release }
}
