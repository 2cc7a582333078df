/**
 * A policy that a file of the user's scripts: an ES module whose default export answers messages with text. Stands in for roles in
 * offline runs and for what is simpler to say in code than to ask a model. Does not watch the file.
 */
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Policy, Result } from '../types.ts'
import { type Script, ScriptedPolicy } from './scripted.ts'

/** Fails when the module cannot be loaded or exports no function. A script that throws is reported with the trajectory that asked it. */
export async function openScriptedModule(path: string): Promise<Result<Policy>> {
  const bad = (problem: string): Result<Policy> => ({
    ok: false,
    failure: {
      boundary: 'policy',
      kind: 'bad_file',
      message: `${path}: expected a module that exports (messages, request) => text as default; ${problem}`,
    },
  })
  let module: { default?: unknown }
  try {
    module = (await import(pathToFileURL(resolve(path)).href)) as { default?: unknown }
  } catch (error) {
    return bad(String(error instanceof Error ? error.message : error).split('\n')[0] as string)
  }
  if (typeof module.default !== 'function') return bad(`its default export is ${typeof module.default}`)
  return { ok: true, value: new ScriptedPolicy(module.default as Script, { name: path }) }
}
