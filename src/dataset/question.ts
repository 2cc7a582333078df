/** The public half of a row: what a policy and agents may see. Reads no field that tells the answer or where it is. */

import type { Question } from '../types.ts'
import { type Checked, faulty } from './failure.ts'
import { describe, type Row } from './rows.ts'

export const OPTION_KEYS = ['a0', 'a1', 'a2', 'a3', 'a4'] as const

export function publicQuestion({ fields, qid, episodeId, where }: Row): Checked<Question> {
  if (typeof fields.q !== 'string' || fields.q.trim() === '') {
    return faulty('question', `${where}: expected the question's text in q, got ${describe(fields.q)}`)
  }
  const options: string[] = []
  for (const key of OPTION_KEYS) {
    const option = fields[key]
    // numbers are options in some files ("How many ...?" -> 3)
    const text = typeof option === 'number' ? String(option) : option
    if (typeof text !== 'string' || text.trim() === '') {
      return faulty(
        'option',
        `${where}: option ${key} is missing; expected five options a0..a4, got ${describe(option)}`,
      )
    }
    options.push(text.trim())
  }
  return { ok: true, value: { qid, episodeId, text: fields.q.trim(), options } }
}
