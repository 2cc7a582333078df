/**
 * Calls of tools in what a model wrote, as its chat template has them. Reads text only: the sampled ids stay what they were
 * (spec/pitfalls.md, row 22).
 */
import { createHash } from 'node:crypto'
import type { ToolSyntax } from '../types.ts'

export interface ToolCall {
  id: string
  type: 'function'
  function: { name: string; arguments: string }
}

/** The calls, and the text without them. Calls that are not well formed stay text. `seed` makes ids of calls repeatable. */
export function parseToolCalls(
  text: string,
  syntax: ToolSyntax,
  seed: string,
): { content: string | null; calls: ToolCall[] } {
  const found = syntax === 'hermes' ? hermesCalls(text) : llamaCalls(text)
  const calls = found.calls.map(
    ({ name, input }, index): ToolCall => ({
      id: `call_${createHash('sha256').update(`${seed}/${index}`).digest('hex').slice(0, 24)}`,
      type: 'function',
      function: { name, arguments: JSON.stringify(input) },
    }),
  )
  const content = found.rest.trim()
  return calls.length === 0 ? { content: text, calls } : { content: content === '' ? null : content, calls }
}

interface Found {
  calls: { name: string; input: unknown }[]
  rest: string
}

/** `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of them. */
function hermesCalls(text: string): Found {
  const calls: Found['calls'] = []
  const rest = text.replace(/<tool_call>([\s\S]*?)<\/tool_call>/g, (whole, inner: string) => {
    const call = callIn(inner, 'arguments')
    if (call === null) return whole
    calls.push(call)
    return ''
  })
  return { calls, rest }
}

/** `{"name": ..., "parameters": {...}}` as the whole answer, with or without `<|python_tag|>` before it. */
function llamaCalls(text: string): Found {
  const call = callIn(text.replace(/^\s*<\|python_tag\|>/, ''), 'parameters')
  return call === null ? { calls: [], rest: text } : { calls: [call], rest: '' }
}

function callIn(text: string, key: 'arguments' | 'parameters'): Found['calls'][number] | null {
  try {
    const call = JSON.parse(text) as Record<string, unknown> | null
    if (typeof call?.name !== 'string' || typeof call[key] !== 'object') return null
    return { name: call.name, input: call[key] ?? {} }
  } catch {
    return null
  }
}
