/**
 * Reads structured output, one JSON value, from what a role wrote, and says what is wrong with it. Knows no role and asks nobody.
 *
 *   output = [ reasoning ] json        reasoning = <reasoning>...</reasoning> or <think>...</think>
 *
 * Exactly this is well formed. One JSON object in a fence or among other words is still read, as the intention is plain, but it is not
 * well formed: a role that is trained on its format earns nothing for it.
 */
import type { z } from 'zod'

export type StructuredRead<T> = { ok: true; value: T; wellFormed: boolean } | { ok: false; problem: string }

export function readStructured<T>(text: string, schema: z.ZodType<T>): StructuredRead<T> {
  const said = text.replace(/^\s*<(reasoning|think)>[\s\S]*?<\/\1>/, '').trim()
  if (said === '') return { ok: false, problem: 'nothing was written' }
  const exact = parsed(said)
  const found = exact ?? parsed(said.slice(said.indexOf('{'), said.lastIndexOf('}') + 1))
  if (found === null) return { ok: false, problem: said.includes('{') ? 'the JSON cannot be read' : 'there is no JSON' }
  const checked = schema.safeParse(found.value)
  if (checked.success) return { ok: true, value: checked.data, wellFormed: exact !== null }
  const [issue] = checked.error.issues
  const at = issue?.path.join('.') ?? ''
  return { ok: false, problem: `${at === '' ? '' : `${at}: `}${issue?.message ?? 'not what was asked for'}` }
}

function parsed(text: string): { value: unknown } | null {
  try {
    return { value: JSON.parse(text) }
  } catch {
    return null
  }
}
