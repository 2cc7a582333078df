/** The two files of a store and the names they go by. A file is `.partial` until its store is closed. */
import { access, type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import type { Schema } from 'apache-arrow'
import { StoreError } from './failure.ts'
import { segmentSchema, trajectorySchema } from './schema.ts'

export type TableName = 'trajectories' | 'segments'

export const schemas: Record<TableName, Schema> = { trajectories: trajectorySchema, segments: segmentSchema }

export function finalPath(directory: string, table: TableName): string {
  return join(directory, `${table}.arrows`)
}

export function partialPath(directory: string, table: TableName): string {
  return `${finalPath(directory, table)}.partial`
}

/** The path that a table lies at now; null when there is none. */
export async function locate(directory: string, table: TableName): Promise<string | null> {
  for (const path of [finalPath(directory, table), partialPath(directory, table)]) {
    if (await exists(path)) return path
  }
  return null
}

/**
 * Opens a table for reading where it lies now. The final name is tried again after the partial one, since a store may be closed, which
 * renames its files, between the two. Throws a `StoreError` when there is none.
 */
export async function openLocated(directory: string, table: TableName): Promise<{ path: string; file: FileHandle }> {
  const final = finalPath(directory, table)
  for (const path of [final, partialPath(directory, table), final]) {
    try {
      return { path, file: await open(path) }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    }
  }
  throw new StoreError(
    'missing_file',
    `${final}: expected the ${table} of a run, found no such file and no .partial; check the directory`,
  )
}

export async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}
