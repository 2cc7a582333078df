/** Files that are there are whole: written under another name, flushed, renamed. Does not know what is in them. */
import { open, readFile, rename, rm } from 'node:fs/promises'

export async function writeWhole(path: string, text: string): Promise<void> {
  const partial = `${path}.${process.pid}.partial`
  const file = await open(partial, 'w')
  try {
    await file.writeFile(text)
    await file.datasync()
  } finally {
    await file.close()
  }
  await rename(partial, path)
}

export async function readOrNull(path: string): Promise<string | null> {
  return readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null
    throw error
  })
}

/** A file written line by line, as long as it takes. */
export interface LineFile {
  write(line: string): Promise<void>
  /** Flushes and gives the file its name. */
  finish(): Promise<void>
  /** Closes and leaves nothing. */
  abandon(): Promise<void>
}

const BUFFERED_CHARACTERS = 256 * 1024

export async function openLineFile(path: string): Promise<LineFile> {
  const partial = `${path}.partial`
  const file = await open(partial, 'w')
  let waiting: string[] = []
  let size = 0
  const flush = async () => {
    await file.writeFile(waiting.join(''))
    waiting = []
    size = 0
  }
  return {
    async write(line) {
      waiting.push(line, '\n')
      size += line.length + 1
      if (size >= BUFFERED_CHARACTERS) await flush()
    },
    async finish() {
      await flush()
      await file.datasync()
      await file.close()
      await rename(partial, path)
    },
    async abandon() {
      await file.close()
      await rm(partial, { force: true })
    },
  }
}
