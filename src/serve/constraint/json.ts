/**
 * One JSON object (RFC 8259) as an acceptor, for `response_format: {"type": "json_object"}`. Follows no schema.
 * Depth and runs of white space are bounded, so that states are finite and a model cannot write spaces for ever.
 */
import type { Acceptor, State } from './acceptor.ts'

const MOST_DEPTH = 24
const MOST_SPACES = 24

/** `open`: what is open, outermost first (`{` or `[`). `mode`: what comes next. `spaces`: white space since the last token of JSON. */
interface Position {
  open: string
  mode: string
  spaces: number
}

/** What may follow each part of a number, by the kind of the next character; whatever else follows ends the number. */
const NUMBER: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'number -': { '0': 'number 0', digit: 'number 1' },
  'number 0': { '.': 'number .', e: 'number e' },
  'number 1': { '0': 'number 1', digit: 'number 1', '.': 'number .', e: 'number e' },
  'number .': { '0': 'number .1', digit: 'number .1' },
  'number .1': { '0': 'number .1', digit: 'number .1', e: 'number e' },
  'number e': { sign: 'number e+', '0': 'number e1', digit: 'number e1' },
  'number e+': { '0': 'number e1', digit: 'number e1' },
  'number e1': { '0': 'number e1', digit: 'number e1' },
}
const COMPLETE_NUMBERS = new Set(['number 0', 'number 1', 'number .1', 'number e1'])

export const jsonObject: Acceptor = {
  start: stateOf({ open: '', mode: 'start', spaces: 0 }),
  step(state, codePoint) {
    const next = follow(positionOf(state), String.fromCodePoint(codePoint))
    return next && stateOf(next)
  },
  isFinal: (state) => positionOf(state).mode === 'done',
}

function stateOf({ open, mode, spaces }: Position): State {
  return `${open}\t${mode}\t${spaces}`
}

function positionOf(state: State): Position {
  const [open, mode, spaces] = String(state).split('\t') as [string, string, string]
  return { open, mode, spaces: Number(spaces) }
}

function follow(at: Position, character: string): Position | null {
  const { open, mode } = at
  const to = (next: string, nowOpen = open): Position => ({ open: nowOpen, mode: next, spaces: 0 })
  const [kind, rest = ''] = mode.split(' ') as [string, string?]
  switch (kind) {
    case 'key':
    case 'text':
      return inString(kind, rest, character, to)
    case 'literal':
      return character !== rest[0] ? null : to(rest.length > 1 ? `literal ${rest.slice(1)}` : 'after')
    case 'number': {
      const next = NUMBER[mode]?.[numberKind(character)]
      if (next !== undefined) return to(next)
      return COMPLETE_NUMBERS.has(mode) ? follow(to('after'), character) : null
    }
  }
  if (/[ \t\n\r]/.test(character))
    return mode !== 'done' && at.spaces < MOST_SPACES ? { ...at, spaces: at.spaces + 1 } : null
  switch (mode) {
    case 'start':
      return character === '{' ? to('firstKey', '{') : null
    case 'firstKey':
    case 'nextKey':
      if (character === '"') return to('key')
      return character === '}' && mode === 'firstKey' ? closed(open) : null
    case 'colon':
      return character === ':' ? to('value') : null
    case 'after':
      if (character === ',') return to(open.endsWith('{') ? 'nextKey' : 'value')
      return character === (open.endsWith('{') ? '}' : ']') ? closed(open) : null
    case 'firstValue':
      return character === ']' ? closed(open) : value(character, open, to)
    case 'value':
      return value(character, open, to)
    default:
      return null
  }
}

type To = (next: string, nowOpen?: string) => Position

function value(character: string, open: string, to: To): Position | null {
  if (character === '"') return to('text')
  if (character === '{' || character === '[')
    return open.length < MOST_DEPTH ? to(character === '{' ? 'firstKey' : 'firstValue', open + character) : null
  if (character === '-') return to('number -')
  const kind = numberKind(character)
  if (kind === '0') return to('number 0')
  if (kind === 'digit') return to('number 1')
  const literal = ['true', 'false', 'null'].find((word) => word[0] === character)
  return literal === undefined ? null : to(`literal ${literal.slice(1)}`)
}

/** `rest`: nothing, `\` after a backslash, or how many hexadecimal digits are to come. */
function inString(kind: 'key' | 'text', rest: string, character: string, to: To): Position | null {
  if (rest === '\\') {
    if (character === 'u') return to(`${kind} 4`)
    return '"\\/bfnrt'.includes(character) ? to(kind) : null
  }
  if (rest !== '') {
    if (!/[0-9a-f]/i.test(character)) return null
    return to(rest === '1' ? kind : `${kind} ${Number(rest) - 1}`)
  }
  if (character === '"') return to(kind === 'key' ? 'colon' : 'after')
  if (character === '\\') return to(`${kind} \\`)
  return character >= ' ' ? to(kind) : null
}

function closed(open: string): Position {
  const outer = open.slice(0, -1)
  return { open: outer, mode: outer === '' ? 'done' : 'after', spaces: 0 }
}

function numberKind(character: string): string {
  if (character === '0' || character === '.') return character
  if (/[1-9]/.test(character)) return 'digit'
  if (/[eE]/.test(character)) return 'e'
  return /[+-]/.test(character) ? 'sign' : character
}
