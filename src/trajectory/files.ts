/** The two files of a store and the names they go by. A file is `.partial` until its store is closed. */
import { access } from 'node:fs/promises'
import { join } from 'node:path'
import type { Schema } from 'apache-arrow'
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

export async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}
