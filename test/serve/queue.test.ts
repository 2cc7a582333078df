/** Who samples next, and who is refused. */
import { setMaxListeners } from 'node:events'
import { expect, test } from 'vitest'
import { FairQueue, QueueFull } from '../../src/serve/queue.ts'

const never = new AbortController().signal
setMaxListeners(0, never)

/** Lets a queue admit whom it can, and tells in which order. */
function watched(places: number, mostWaiting = 100) {
  const queue = new FairQueue({ places, mostWaiting })
  const admitted: string[] = []
  const enter = (client: string, name: string, { size = 1, priority = 0, signal = never } = {}) =>
    queue.enter(client, size, priority, signal).then(() => admitted.push(name))
  const settled = () => new Promise((resolve) => setImmediate(resolve))
  return { queue, admitted, enter, settled }
}

test('a free place goes to the client with the fewest running, then to who came first', async () => {
  const { queue, admitted, enter, settled } = watched(2)
  for (let i = 0; i < 5; i++) void enter('greedy', `g${i}`)
  void enter('modest', 'm0')
  void enter('third', 't0')
  await settled()
  expect(admitted).toEqual(['g0', 'g1'])
  for (const leaves of ['greedy', 'greedy', 'modest', 'third']) {
    queue.leave(leaves)
    await settled()
  }
  expect(admitted.slice(2)).toEqual(['m0', 't0', 'g2', 'g3'])
  expect([queue.running, queue.waiting]).toEqual([2, 1])
})

test('with a single place, clients take turns however many one has sent before', async () => {
  const { queue, admitted, enter, settled } = watched(1)
  for (let i = 0; i < 50; i++) void enter('greedy', `g${i}`)
  for (let i = 0; i < 3; i++) void enter('modest', `m${i}`)
  await settled()
  for (const runs of ['greedy', 'modest', 'greedy', 'modest', 'greedy']) {
    queue.leave(runs)
    await settled()
  }
  expect(admitted).toEqual(['g0', 'm0', 'g1', 'm1', 'g2', 'm2'])
})

test('within a client lower priorities go first, and equal ones as they came', async () => {
  const { queue, admitted, enter, settled } = watched(1)
  void enter('a', 'runs')
  for (const [name, priority] of [
    ['late', 5],
    ['first', -1],
    ['second', 0],
    ['third', 0],
  ] as const)
    void enter('a', name, { priority })
  for (let i = 0; i < 4; i++) {
    await settled()
    queue.leave('a')
  }
  await settled()
  expect(admitted).toEqual(['runs', 'first', 'second', 'third', 'late'])
})

test('what needs several places keeps its turn: smaller ones do not pass it for ever', async () => {
  const { queue, admitted, enter, settled } = watched(4)
  for (let i = 0; i < 4; i++) void enter('a', `a${i}`)
  void enter('b', 'large', { size: 3 })
  void enter('c', 'small')
  await settled()
  queue.leave('a')
  await settled()
  expect(admitted).toHaveLength(4)
  queue.leave('a')
  queue.leave('a')
  await settled()
  expect(admitted.slice(4)).toEqual(['large'])
})

test('more than there are places runs alone', async () => {
  const { admitted, enter, settled } = watched(4)
  void enter('a', 'huge', { size: 9 })
  await settled()
  expect(admitted).toEqual(['huge'])
})

test('the queue is bounded: a request beyond is refused with a time to try again', async () => {
  const { queue, enter, settled } = watched(2, 3)
  void enter('a', '1', { size: 2 })
  await settled()
  queue.check(3)
  expect(() => queue.check(4)).toThrow(QueueFull)
  void enter('a', '2', { size: 2 })
  expect(() => queue.check(2)).toThrow(QueueFull)
  try {
    queue.check(2)
  } catch (error) {
    const { waiting, retrySeconds } = error as QueueFull
    expect(waiting).toBe(2)
    expect(retrySeconds).toBeGreaterThanOrEqual(1)
    expect(retrySeconds).toBeLessThanOrEqual(60)
  }
})

test('who gives up leaves no gap, and a closed queue lets nobody in', async () => {
  const { queue, admitted, enter, settled } = watched(1)
  const leaving = new AbortController()
  void enter('a', '1')
  const left = enter('b', '2', { signal: leaving.signal })
  const waits = enter('c', '3')
  leaving.abort(new Error('gone'))
  await expect(left).rejects.toThrow('gone')
  expect(queue.waiting).toBe(1)
  queue.close(new Error('closed'))
  await expect(waits).rejects.toThrow('closed')
  await expect(enter('d', '4')).rejects.toThrow('closed')
  queue.leave('a')
  await settled()
  expect(admitted).toEqual(['1'])
  expect([queue.running, queue.waiting]).toEqual([0, 0])
})

test('giving back a place that was not taken is a mistake of ours', () => {
  expect(() => watched(1).queue.leave('a')).toThrow(/more places than it took/)
})
