/** Tokens in, tokens out: what the recorder keeps is what was sampled. */
import seedrandom from 'seedrandom'
import { expect, test } from 'vitest'
import { startCutoff } from '../../src/rollout/cutoff.ts'
import { createRecorder } from '../../src/rollout/recorder.ts'
import type { Budget, Generation, Message, Segment } from '../../src/types.ts'
import { failure, type Line, scriptedPolicy, wordTokenizer } from './scripted.ts'

const roomy: Budget = {
  turns: 5,
  windowClips: 1,
  tokensPerTurn: 100,
  tokensPerObservation: null,
  tokensPerTrajectory: null,
  deadlineSeconds: null,
}
const user = (content: string): Message => ({ role: 'user', content })
const assistant = (content: string): Message => ({ role: 'assistant', content })

function recorderOver(
  lines: readonly Line[],
  settings: Parameters<typeof scriptedPolicy>[1] & { budget?: Partial<Budget> } = {},
) {
  const scripted = scriptedPolicy(lines, settings)
  const cutoff = startCutoff('t', null)
  return {
    ...scripted,
    cutoff,
    recorder: createRecorder(scripted.policy, {
      session: '0/q1/0',
      seed: '7/0/q1/0',
      temperature: 1,
      budget: { ...roomy, ...settings.budget },
      cutoff,
    }),
  }
}

test('two calls that extend each other share a segment: prompt, sampled, observed, sampled', async () => {
  const { recorder, requests, tokenizer } = recorderOver(['x y', 'z'])
  await recorder.say([user('a b')], ['</s>'])
  await recorder.say([user('a b'), assistant('x y'), user('c')], ['</s>'])
  const { segments, usage, policyVersion } = recorder.recording()
  expect(segments).toHaveLength(1)
  const [segment] = segments as [Segment]
  expect(tokenizer.decode(segment.ids)).toBe(
    '<|user|> a b <|end|> <|assistant|> x y <|end|> <|user|> c <|end|> <|assistant|> z',
  )
  expect(segment.actionMask.join('')).toBe('00000' + '11' + '00000' + '1')
  expect(segment.promptLength).toBe(5)
  expect(segment.logprobs.map((logprob) => (logprob < 0 ? 1 : 0))).toEqual(segment.actionMask)
  expect(requests[1]?.promptIds).toEqual(segment.ids.slice(0, 12))
  expect(requests.map(({ seed, session, sampling }) => [seed, session, sampling])).toEqual([
    ['7/0/q1/0/0', '0/q1/0', { temperature: 1, maxTokens: 100, stop: ['</s>'] }],
    ['7/0/q1/0/1', '0/q1/0', { temperature: 1, maxTokens: 100, stop: ['</s>'] }],
  ])
  expect(usage).toMatchObject({ calls: 2, completionTokens: 3 })
  expect(policyVersion).toBe('0')
})

test('sampled ids that decode to something else are kept as they are, never encoded again', async () => {
  const tokenizer = wordTokenizer()
  const strange = [...tokenizer.encode('x'), ...tokenizer.encode('y')]
  const { recorder } = recorderOver([{ text: 'xy', tokenIds: strange, logprobs: [-1, -2] }, 'z'], { tokenizer })
  await recorder.say([user('a')], [])
  await recorder.say([user('a'), assistant('xy'), user('b')], [])
  const [segment] = recorder.recording().segments as [Segment]
  expect(segment.ids.slice(4, 6)).toEqual(strange)
  expect(segment.logprobs.slice(4, 6)).toEqual([-1, -2])
})

test('a prefix that no longer matches starts a new segment; the old one stays', async () => {
  const { recorder, tokenizer } = recorderOver(['x y', 'z'])
  await recorder.say([user('a')], [])
  await recorder.say([user('a'), assistant('x'), user('b')], [])
  const { segments } = recorder.recording()
  expect(
    segments.map(({ ids, promptLength }) => [
      tokenizer.decode(ids.slice(0, promptLength)),
      tokenizer.decode(ids.slice(promptLength)),
    ]),
  ).toEqual([
    ['<|user|> a <|end|> <|assistant|>', 'x y'],
    ['<|user|> a <|end|> <|assistant|> x <|end|> <|user|> b <|end|> <|assistant|>', 'z'],
  ])
})

test('an end-of-message token that was sampled is not written twice', async () => {
  const tokenizer = wordTokenizer()
  const ended = [...tokenizer.encode('x'), tokenizer.END]
  const { recorder } = recorderOver([{ text: 'x', tokenIds: ended, logprobs: [-1, -1] }, 'z'], { tokenizer })
  await recorder.say([user('a')], [])
  await recorder.say([user('a'), assistant('x'), user('b')], [])
  const [segment] = recorder.recording().segments as [Segment]
  expect(tokenizer.decode(segment.ids)).toBe(
    '<|user|> a <|end|> <|assistant|> x <|end|> <|user|> b <|end|> <|assistant|> z',
  )
  expect(segment.actionMask.join('')).toBe('0000' + '11' + '0000' + '1')
})

test('new weights in the middle start a new segment from the same ids', async () => {
  let version = 'v1'
  const { recorder } = recorderOver(['x', 'y'], { version: () => version })
  await recorder.say([user('a')], [])
  version = 'v2'
  await recorder.say([user('a'), assistant('x'), user('b')], [])
  const { segments, policyVersion } = recorder.recording()
  expect(segments.map((segment) => segment.policyVersion)).toEqual(['v1', 'v2'])
  expect(segments[1]?.ids.slice(0, segments[0]?.ids.length)).toEqual(segments[0]?.ids)
  expect(segments[1]?.actionMask.reduce<number>((sum, bit) => sum + bit, 0)).toBe(1)
  expect(policyVersion).toBe('v1')
})

test('a policy in text only gives no segments', async () => {
  const { recorder, requests } = recorderOver(['x', 'y'], { textOnly: true })
  expect(await recorder.say([user('a')], [])).toEqual({ ok: true, text: 'x' })
  expect(recorder.recording().segments).toEqual([])
  expect(requests[0]?.promptIds).toBeUndefined()
})

const bad: [string, Partial<Generation>, RegExp][] = [
  ['fewer log-probabilities than ids', { tokenIds: [1, 2], logprobs: [-1] }, /2 token ids and 1 log-prob/],
  ['no log-probabilities', { tokenIds: [1], logprobs: null }, /without log-prob/],
  ['a NaN', { tokenIds: [1, 2], logprobs: [-1, Number.NaN] }, /NaN for token 1 of 2/],
  ['an infinity', { tokenIds: [1], logprobs: [Number.NEGATIVE_INFINITY] }, /-Infinity/],
  ['a JSON null', { tokenIds: [1], logprobs: [null as unknown as number] }, /null/],
  ['a broken id', { tokenIds: [-1], logprobs: [-1] }, /token id -1/],
  ['more tokens than allowed', { tokenIds: Array(101).fill(1), logprobs: Array(101).fill(-1) }, /101 tokens where 100/],
]
test.each(bad)('%s is a policy error, and nothing of it is kept', async (_, generation, message) => {
  const { recorder } = recorderOver([{ text: 'x', ...generation }])
  const said = await recorder.say([user('a')], [])
  expect(said).toMatchObject({
    ok: false,
    stopReason: 'policy_error',
    failure: { boundary: 'policy', kind: 'bad_response', message: expect.stringMatching(message) },
  })
  expect(recorder.recording().segments).toEqual([])
})

test('ids once and none later is a policy error', async () => {
  const { recorder } = recorderOver(['x', { text: 'y', tokenIds: null, logprobs: null }])
  await recorder.say([user('a')], [])
  expect(await recorder.say([user('a'), assistant('x'), user('b')], [])).toMatchObject({ stopReason: 'policy_error' })
})

test('tokens per turn: cut off with what was written, which is kept for training', async () => {
  const { recorder } = recorderOver(['one two three'], { budget: { tokensPerTurn: 2 } })
  expect(await recorder.say([user('a')], [])).toEqual({
    ok: false,
    stopReason: 'token_limit',
    failure: null,
    text: 'one two',
  })
  expect(recorder.recording().segments[0]?.actionMask.join('')).toBe('000011')
})

test('tokens per trajectory count what was written and observed after the first prompt', async () => {
  const { recorder, requests } = recorderOver(['x y', 'p q r s', 'never'], { budget: { tokensPerTrajectory: 10 } })
  await recorder.say([user('a')], [])
  // 2 written + <|end|> <|user|> b <|end|> <|assistant|> = 7, so 3 are left
  expect(await recorder.say([user('a'), assistant('x y'), user('b')], [])).toMatchObject({
    ok: false,
    stopReason: 'token_limit',
    text: 'p q r',
  })
  expect(requests[1]?.sampling.maxTokens).toBe(3)
  expect(await recorder.say([user('a'), assistant('x y'), user('b'), assistant('p q r'), user('c')], [])).toEqual({
    ok: false,
    stopReason: 'token_limit',
    failure: null,
  })
  expect(requests).toHaveLength(2)
})

test('tokens per trajectory hold for a policy that only reports usage', async () => {
  const { recorder, requests } = recorderOver(
    [
      {
        text: 'x',
        usage: { calls: 1, promptTokens: 50, completionTokens: 6, frames: 0, seconds: 0, costUsd: 0, cached: 0 },
      },
    ],
    { textOnly: true, budget: { tokensPerTrajectory: 10 } },
  )
  await recorder.say([user('a')], [])
  await recorder.say([user('a'), assistant('x'), user('b')], [])
  expect(requests.map(({ sampling }) => sampling.maxTokens)).toEqual([10, 4])
})

test('the context is never overrun: less room, then no call', async () => {
  const { recorder, requests } = recorderOver(['x y', 'p q r s'], { contextLength: 13 })
  await recorder.say([user('a')], []) // 4 + 2
  expect(await recorder.say([user('a'), assistant('x y'), user('b')], [])).toMatchObject({
    ok: false,
    stopReason: 'context_limit',
    text: 'p q',
  })
  expect(requests[1]?.sampling.maxTokens).toBe(2)
  const full = recorderOver(['x'], { contextLength: 4 })
  expect(await full.recorder.say([user('a')], [])).toEqual({ ok: false, stopReason: 'context_limit', failure: null })
  expect(full.requests).toHaveLength(0)
})

test("a policy's own failures: its context limit is a limit, everything else an error", async () => {
  expect(await recorderOver([failure('policy', 'context_limit')]).recorder.say([user('a')], [])).toMatchObject({
    stopReason: 'context_limit',
  })
  expect(await recorderOver([failure('policy', 'server_error')]).recorder.say([user('a')], [])).toMatchObject({
    stopReason: 'policy_error',
    failure: failure('policy', 'server_error'),
  })
})

test('what comes after the cut-off is ignored', async () => {
  let release!: (text: string) => void
  const { recorder, cutoff } = recorderOver([() => new Promise((resolve) => (release = resolve))])
  const said = recorder.say([user('a')], [])
  cutoff.cancel()
  expect(await said).toMatchObject({ ok: false, stopReason: 'cancelled' })
  release('late')
  await new Promise((resolve) => setImmediate(resolve))
  expect(recorder.recording()).toMatchObject({ segments: [], usage: { calls: 0 } })
})

test('property: whatever the conversation, lengths agree and masked ids are exactly the sampled ones, in order', async () => {
  for (let seed = 0; seed < 200; seed++) {
    const draw = seedrandom(`segments/${seed}`)
    const upTo = (n: number): number => Math.floor(draw() * n)
    const words = (most: number): string => Array.from({ length: upTo(most) }, () => `w${upTo(9)}`).join(' ')
    let version = 'v0'
    const { recorder, tokenizer } = recorderOver([() => words(6)], {
      version: () => version,
      contextLength: 80,
      budget: { tokensPerTurn: 4 },
    })
    const messages: Message[] = [user(words(8))]
    const sampled: string[] = []
    for (let turn = 0; turn < 6; turn++) {
      if (draw() < 0.1) version = `v${turn}`
      const said = await recorder.say(messages, [])
      if (said.ok || said.text !== undefined) sampled.push(said.text as string)
      if (!said.ok) break
      const kept = draw() < 0.2 ? `${said.text} edited` : said.text
      messages.push(assistant(kept), user(words(8)))
    }
    const { segments } = recorder.recording()
    for (const { ids, actionMask, logprobs, promptLength } of segments) {
      expect([actionMask.length, logprobs.length]).toEqual([ids.length, ids.length])
      expect(ids.length).toBeLessThanOrEqual(80)
      expect(actionMask.slice(0, promptLength).every((bit) => bit === 0)).toBe(true)
      expect(logprobs.every((logprob, t) => (actionMask[t] === 1 ? logprob < 0 : logprob === 0))).toBe(true)
    }
    const masked = segments.flatMap(({ ids, actionMask }) => ids.filter((_, t) => actionMask[t] === 1))
    expect(tokenizer.decode(masked)).toBe(sampled.filter((text) => text !== '').join(' '))
  }
})
