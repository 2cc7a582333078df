/**
 * The stores of a run's folder: a training run keeps its trajectories in the folder itself, held-out runs and the cells of a comparison
 * below it. Also the addresses under which the viewer shows them, since reports link there. Opens no store.
 */
import { readdir } from 'node:fs/promises'
import { join, relative, sep } from 'node:path'
import { locate } from './files.ts'

/** Folders below a run's folder are looked into this far. */
const DEPTH = 3

/** Paths from `directory` to the stores in and below it, in order of name; `''` is the folder itself. */
export async function findStores(directory: string): Promise<string[]> {
  const found: string[] = []
  const look = async (path: string, depth: number): Promise<void> => {
    if ((await locate(path, 'trajectories')) !== null) found.push(relative(directory, path))
    if (depth === 0) return
    const inside = await readdir(path, { withFileTypes: true }).catch(() => [])
    for (const entry of inside.toSorted((a, b) => (a.name < b.name ? -1 : 1)))
      if (entry.isDirectory()) await look(join(path, entry.name), depth - 1)
  }
  await look(directory, DEPTH)
  return found
}

/** Where `showrunner view` listens unless it is told otherwise. */
export const VIEWER_PORT = 8100

/** The root of a store's pages: `/` for the folder itself, `/in/cells~1f3a/` for the store `cells/1f3a`. */
export function storeRoot(path: string): string {
  return path === '' ? '/' : `/in/${encodeURIComponent(path.split(sep).join('~'))}/`
}

/** A trajectory's id as it stands in addresses. */
export function idInAddress(trajectoryId: string): string {
  return trajectoryId.split('/').map(encodeURIComponent).join('/')
}
