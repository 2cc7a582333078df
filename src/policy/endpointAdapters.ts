/**
 * Adapters of an endpoint: loaded and unloaded while it serves, by the requests that vLLM takes when it is started with
 * VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, and `showrunner serve` always. The server reads the folder itself, so it must see the same disk.
 */
import type { Failure, Result } from '../types.ts'
import type { EndpointPolicyOptions } from './options.ts'

/** Makes the endpoint know the adapter in this folder by a name; nothing to do when it knows the name: weights under a name never change. */
export async function loadEndpointAdapter(
  options: EndpointPolicyOptions,
  name: string,
  folder: string,
): Promise<Result<void>> {
  const listed = await call(options, 'GET', 'models')
  if (!listed.ok) return listed
  const { data = [] } = JSON.parse(listed.value) as { data?: { id?: unknown }[] }
  if (data.some(({ id }) => id === name)) return { ok: true, value: undefined }
  const loaded = await call(options, 'POST', 'load_lora_adapter', { lora_name: name, lora_path: folder })
  return loaded.ok ? { ok: true, value: undefined } : loaded
}

export async function unloadEndpointAdapter(options: EndpointPolicyOptions, name: string): Promise<Result<void>> {
  const unloaded = await call(options, 'POST', 'unload_lora_adapter', { lora_name: name })
  return unloaded.ok ? { ok: true, value: undefined } : unloaded
}

/** The text of the answer. */
async function call(
  { baseUrl, apiKeyEnv, deadlineSeconds }: EndpointPolicyOptions,
  method: string,
  path: string,
  body?: object,
): Promise<Result<string>> {
  const url = `${baseUrl.replace(/\/$/, '')}/${path}`
  const fail = (kind: Failure['kind'], problem: string): Result<string> => ({
    ok: false,
    failure: { boundary: 'policy', kind, message: `${url}: ${problem}`.replace(/\s+/g, ' ').slice(0, 400) },
  })
  const key = apiKeyEnv === null ? undefined : process.env[apiKeyEnv]
  try {
    const response = await fetch(url, {
      method,
      headers: { 'content-type': 'application/json', ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(deadlineSeconds * 1000),
    })
    const text = await response.text()
    if (response.ok) return { ok: true, value: text }
    const problem = `answered ${response.status}: ${text}; expected a server that loads adapters while it serves (vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, or showrunner serve)`
    return fail(response.status >= 500 ? 'server_error' : 'bad_request', problem)
  } catch (error) {
    if ((error as Error).name === 'TimeoutError') return fail('timeout', `no answer within ${deadlineSeconds} s`)
    if (error instanceof TypeError) return fail('unreachable', `cannot be reached (${causeOf(error)}); check the URL`)
    throw error
  }
}

function causeOf({ cause, message }: Error): string {
  return cause instanceof Error ? String((cause as NodeJS.ErrnoException).code ?? cause.message) : message
}
