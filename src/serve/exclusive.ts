/**
 * One process at a time for a folder: its owner listens on a socket that is named after the folder, and the system lets go of that however
 * the owner ends. Holds on one machine, not between machines that share a disk. Writes nothing into the folder.
 */
import { createHash } from 'node:crypto'
import { realpath, rm } from 'node:fs/promises'
import { connect, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Lets go of the folder. */
export type Release = () => Promise<void>

/** null when another server has it, of this process or another. The folder must exist; throws the errors of the file system. */
export async function ownFolder(directory: string): Promise<Release | null> {
  const address = addressOf(await realpath(directory))
  let server = await listen(address)
  if (server === null && !(await answers(address))) {
    // its owner was killed
    await rm(address, { force: true })
    server = await listen(address)
  }
  if (server === null) return null
  const owned = server
  return () => new Promise((resolve) => owned.close(() => resolve()))
}

function addressOf(path: string): string {
  const name = `showrunner-${createHash('sha256').update(path).digest('hex').slice(0, 24)}`
  // paths of sockets may have a hundred bytes only, so it cannot lie in the folder
  return process.platform === 'win32' ? `\\\\.\\pipe\\${name}` : join(tmpdir(), `${name}.sock`)
}

/** null when something is there already. */
function listen(address: string): Promise<Server | null> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy())
    server.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(null) : reject(error),
    )
    server.listen(address, () => resolve(server.unref()))
  })
}

function answers(address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(address, () => resolve(true))
    // refused: nobody listens; whatever else (no permission) tells nothing
    socket.on('error', (error: NodeJS.ErrnoException) =>
      resolve(!['ECONNREFUSED', 'ENOENT'].includes(error.code ?? '')),
    )
  })
}
