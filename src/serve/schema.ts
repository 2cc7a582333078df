/** Reads request bodies by schema. Whatever is wrong with one is a 400 that names the parameter; nothing is ignored in silence. */
import { z } from 'zod'
import { ApiError } from './errors.ts'

export const flag = z.boolean().nullish()

/** Accepts only values that change nothing, since clients send them. */
export const neutral = <Value extends number | boolean | string>(...values: [Value, ...Value[]]) =>
  z.literal(values, { error: `only ${values.join(' or ')} is supported` }).nullish()

export const tokenIds = z.array(z.number().int().min(0)).min(1)

/** Fails with 400 naming the first bad parameter, and every unknown one. */
export function parse<Schema extends z.ZodType>(schema: Schema, body: unknown): z.output<Schema> {
  const parsed = schema.safeParse(body)
  if (parsed.success) return parsed.data
  const { issues } = parsed.error
  const unknown = issues.find((issue) => issue.code === 'unrecognized_keys')
  if (unknown) {
    const names = unknown.keys.map((key) => [...unknown.path, key].join('.'))
    throw new ApiError(400, `Unsupported parameter${names.length > 1 ? 's' : ''}: ${names.join(', ')}.`, {
      param: names[0] ?? null,
      code: 'unsupported_parameter',
    })
  }
  const issue = issues[0]
  const param = issue?.path.join('.') || null
  throw refused(param, issue?.message.replace(/^Invalid input: /, '') ?? 'not understood')
}

/** 400 for a parameter whose value cannot be honoured. */
export function refused(param: string | null, problem: string): ApiError {
  return new ApiError(400, `${param ?? 'body'}: ${problem}.`, { param, code: 'invalid_value' })
}
