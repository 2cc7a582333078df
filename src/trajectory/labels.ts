/**
 * What people said about trajectories: `labels.jsonl` beside a store, one label per line, only ever appended to and flushed. The last
 * line about a trajectory is what holds; a line that a crash cut short is passed over. Shows nothing and counts nothing.
 */
import { open, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import type { Result } from '../types.ts'
import { failureOf, StoreError } from './failure.ts'

export const labelKinds = ['grounding_wrong', 'vision_wrong', 'reasoning_wrong', 'question_ambiguous', 'other'] as const
export type LabelKind = (typeof labelKinds)[number]

const labelLine = z
  .object({
    trajectoryId: z.string().min(1),
    kinds: z.array(z.enum(labelKinds)).describe('What is wrong; with no kind and no note the label is withdrawn.'),
    note: z.string(),
    by: z.string().describe('Who says so.'),
    at: z.iso.datetime().describe('When.'),
    goldShown: z.boolean().describe('Whether the right answer was shown to whoever labelled.'),
  })
  .strict()

export type Label = z.output<typeof labelLine>

export function labelsPath(directory: string): string {
  return join(directory, 'labels.jsonl')
}

/** The label that holds, by trajectory; withdrawn ones are left out. No file: no labels. */
export async function readLabels(directory: string): Promise<Result<Map<string, Label>>> {
  const path = labelsPath(directory)
  const labels = new Map<string, Label>()
  try {
    const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return ''
      throw error
    })
    for (const [index, line] of text.split('\n').entries()) {
      const value = parsed(line)
      if (value === undefined) continue
      const label = labelLine.safeParse(value)
      if (!label.success)
        throw new StoreError(
          'bad_file',
          `${path}: line ${index + 1}: ${label.error.issues[0]?.path.join('.')}: ${label.error.issues[0]?.message}; correct or delete the line`,
        )
      const { trajectoryId, kinds, note } = label.data
      // put last, so that the order is that of the labelling
      labels.delete(trajectoryId)
      if (kinds.length > 0 || note !== '') labels.set(trajectoryId, label.data)
    }
    return { ok: true, value: labels }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `reading ${path}`) }
  }
}

/** On disk when it resolves. */
export async function appendLabel(directory: string, label: Label): Promise<Result<void>> {
  const path = labelsPath(directory)
  try {
    const file = await open(path, 'a+')
    try {
      const { size } = await file.stat()
      const last = Buffer.alloc(1)
      if (size > 0) await file.read(last, 0, 1, size - 1)
      // a line that a crash cut short must not swallow this one
      const separator = size > 0 && last.toString() !== '\n' ? '\n' : ''
      await file.appendFile(`${separator}${JSON.stringify(label)}\n`)
      await file.sync()
    } finally {
      await file.close()
    }
    return { ok: true, value: undefined }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `writing ${path}`) }
  }
}

/** undefined for what is no JSON: an empty line, or one cut short. */
function parsed(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return undefined
  }
}
