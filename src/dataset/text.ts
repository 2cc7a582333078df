/** Text files in whatever encoding they come. Does not know what the text means. */
import { readFile } from 'node:fs/promises'
import { analyse } from 'chardet'
import iconv from 'iconv-lite'
import type { Result } from '../types.ts'
import { failed, fileFailure } from './failure.ts'

export interface DecodedText {
  text: string
  encoding: string
}

/** Reads and decodes a text file. Fails with `missing_file`, or with `bad_file` when it is empty or no text. */
export async function readText(path: string): Promise<Result<DecodedText>> {
  let bytes: Buffer
  try {
    bytes = await readFile(path)
  } catch (error) {
    return fileFailure(path, error)
  }
  if (bytes.length === 0) return failed('bad_file', `${path}: the file is empty; download or write it again`)
  return decodeText(bytes, path)
}

/** UTF-8 when the bytes are valid UTF-8; else the likeliest encoding. TVQA's subtitles are ISO-8859-1. */
export function decodeText(bytes: Buffer, path: string): Result<DecodedText> {
  const utf16 = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff)
  if (!utf16) {
    try {
      return { ok: true, value: { text: new TextDecoder('utf-8', { fatal: true }).decode(bytes), encoding: 'UTF-8' } }
    } catch {
      // not UTF-8: guess below
    }
  }
  // Western European text differs from its neighbours in a few bytes only, so a guess that is about as good gives way to it.
  const guesses = analyse(bytes)
  const best = guesses[0]
  const western = guesses.find((guess) => /^(ISO-8859-1|windows-1252)$/i.test(guess.name))
  const guess = best && western && western.confidence >= best.confidence - 15 ? western : best
  if (!guess || !iconv.encodingExists(guess.name)) {
    return failed(
      'bad_file',
      `${path}: the text encoding was not recognised (${guess?.name ?? 'no guess'}); save the file as UTF-8`,
    )
  }
  return { ok: true, value: { text: iconv.decode(bytes, guess.name), encoding: guess.name } }
}
