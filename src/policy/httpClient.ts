/**
 * `fetch` for the openai client, over undici's `request`: the same connections as Node's own `fetch`, which is undici's too, without web
 * streams and without a `Response`. That is most of what a call costs here, and hundreds of rollouts share one thread. Bodies are whole: an
 * answer is read to its end before `fetch` resolves, so a lost connection is an error of the call, and the client's time limit holds for all of it.
 * Not for streamed answers.
 */
import { Agent, request } from 'undici'

export interface HttpClient {
  fetch: typeof fetch
  close(): Promise<void>
}

export function openHttpClient(): HttpClient {
  // time limits are the caller's signal; undici's own would come first at long answers
  const dispatcher = new Agent({ headersTimeout: 0, bodyTimeout: 0 })
  return {
    async fetch(url, init = {}) {
      const { statusCode, headers, body } = await request(String(url), {
        dispatcher,
        method: (init.method ?? 'GET') as 'GET' | 'POST',
        headers: [...(init.headers instanceof Headers ? init.headers : new Headers(init.headers))].flat(),
        body: (init.body as string | null | undefined) ?? null,
        signal: init.signal ?? null,
      })
      return new PlainResponse(String(url), statusCode, headers, await body.text()) as unknown as Response
    },
    close: () => dispatcher.destroy(),
  }
}

type ReceivedHeaders = Record<string, string | string[] | undefined>

/** What the openai client reads of a `Response`. */
class PlainResponse {
  /** Nothing is left to read or to cancel. */
  readonly body = null
  readonly ok: boolean

  constructor(
    readonly url: string,
    readonly status: number,
    private readonly received: ReceivedHeaders,
    private readonly content: string,
  ) {
    this.ok = status >= 200 && status < 300
  }

  get headers(): { get(name: string): string | null; entries(): IterableIterator<[string, string]> } {
    const { received } = this
    return {
      get: (name) => textOf(received[name.toLowerCase()]) ?? null,
      entries: function* () {
        for (const [name, value] of Object.entries(received)) yield [name, textOf(value) ?? '']
      },
    }
  }

  async text(): Promise<string> {
    return this.content
  }

  async json(): Promise<unknown> {
    return JSON.parse(this.content)
  }
}

function textOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(', ') : value
}
