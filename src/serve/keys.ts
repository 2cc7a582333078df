/** API keys: from an environment variable or a file, compared in constant time. Knows no requests. */
import { createHash, timingSafeEqual } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { Result } from '../types.ts'
import type { ServeOptions } from './options.ts'

export interface Keys {
  /** Whether clients must send one. */
  required: boolean
  /** The time taken tells nothing about the keys: digests are compared, and all of them. */
  accept(given: string): boolean
}

/** Keys in the file are one a line; empty lines and those that begin with # are not. Several in the variable are separated by commas. */
export async function readKeys({
  apiKeyFile,
  apiKeyVariable,
}: Pick<ServeOptions, 'apiKeyFile' | 'apiKeyVariable'>): Promise<Result<Keys>> {
  const keys = (process.env[apiKeyVariable] ?? '').split(',')
  if (apiKeyFile !== null) {
    const bad = (problem: string): Result<Keys> => ({
      ok: false,
      failure: { boundary: 'serve', kind: 'bad_file', message: `serve.apiKeyFile ${apiKeyFile}: ${problem}` },
    })
    try {
      const lines = (await readFile(apiKeyFile, 'utf8')).split('\n').map((line) => line.trim())
      const found = lines.filter((line) => line !== '' && !line.startsWith('#'))
      if (found.length === 0) return bad('expected a key on a line, found none; add one or leave the option out')
      keys.push(...found)
    } catch (error) {
      return bad(`${(error as Error).message}; expected a text file with one key a line`)
    }
  }
  return { ok: true, value: keysOf(keys.map((key) => key.trim()).filter((key) => key !== '')) }
}

export function keysOf(keys: readonly string[]): Keys {
  const digests = keys.map(digest)
  return {
    required: digests.length > 0,
    accept(given) {
      const wanted = digest(given)
      let found = false
      for (const known of digests) if (timingSafeEqual(known, wanted)) found = true
      return found
    },
  }
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
