/** JSON files of a checkpoint: what is not JSON, or no object, is a failure that names the file. */
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { CheckpointError } from './durable.ts'

export function parseJson(text: string, where: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new CheckpointError(
      'bad_file',
      `${where}: expected JSON: ${(error as Error).message}; restore it from a copy or save it again`,
    )
  }
}

export function parseObject(text: string, where: string): Record<string, unknown> {
  const value = parseJson(text, where)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new CheckpointError(
      'bad_file',
      `${where}: expected a JSON object, got ${Array.isArray(value) ? 'an array' : typeof value}`,
    )
  }
  return value as Record<string, unknown>
}

/** null when there is no such file. */
export async function readText(path: string): Promise<string | null> {
  return existsSync(path) ? await readFile(path, 'utf8') : null
}

/** null when there is no such file. */
export async function readJson(path: string): Promise<Record<string, unknown> | null> {
  const text = await readText(path)
  return text === null ? null : parseObject(text, path)
}
