/** Labels: appended, the last one holds, a line that was cut short costs nothing else. */
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { appendLabel, type Label, labelsPath, readLabels } from '../../src/trajectory/labels.ts'

const root = mkdtempSync(join(tmpdir(), 'labels-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
const fresh = () => mkdtempSync(join(root, 'run-'))

function label(trajectoryId: string, kinds: Label['kinds'], note = ''): Label {
  return { trajectoryId, kinds, note, by: 'ada', at: '2026-11-30T12:00:00.000Z', goldShown: false }
}

async function held(directory: string): Promise<[string, Label['kinds'], string][]> {
  const read = await readLabels(directory)
  if (!read.ok) throw new Error(read.failure.message)
  return [...read.value.values()].map(({ trajectoryId, kinds, note }) => [trajectoryId, kinds, note])
}

test('a run without labels has none; the last label of a trajectory holds; an empty one withdraws it', async () => {
  const directory = fresh()
  expect(await held(directory)).toEqual([])
  await appendLabel(directory, label('0/q1/0', ['grounding_wrong']))
  await appendLabel(directory, label('0/q2/0', ['vision_wrong', 'other'], 'looks at\nthe wrong sign'))
  await appendLabel(directory, label('0/q1/0', ['reasoning_wrong'], 'the clip was right'))
  await appendLabel(directory, label('0/q3/0', [], 'only a note'))
  await appendLabel(directory, label('0/q3/0', []))
  expect(await held(directory)).toEqual([
    ['0/q2/0', ['vision_wrong', 'other'], 'looks at\nthe wrong sign'],
    ['0/q1/0', ['reasoning_wrong'], 'the clip was right'],
  ])
  expect(readFileSync(labelsPath(directory), 'utf8').split('\n')).toHaveLength(6)
})

test('after a crash in the middle of a line the labels before and after it are whole', async () => {
  const directory = fresh()
  await appendLabel(directory, label('0/q1/0', ['other']))
  const cut = JSON.stringify(label('0/q2/0', ['other']))
  for (const length of [1, 20, cut.length - 1]) {
    appendFileSync(labelsPath(directory), cut.slice(0, length))
    await appendLabel(directory, label(`0/q${length}/9`, ['vision_wrong']))
  }
  expect((await held(directory)).map(([id]) => id)).toEqual(['0/q1/0', '0/q1/9', '0/q20/9', `0/q${cut.length - 1}/9`])
})

test('a line that says something else is named', async () => {
  const directory = fresh()
  await appendLabel(directory, label('0/q1/0', ['other']))
  appendFileSync(labelsPath(directory), '{"trajectoryId":"0/q2/0","kinds":["nonsense"]}\n')
  const read = await readLabels(directory)
  expect(!read.ok && read.failure.message).toMatch(/labels\.jsonl: line 2: kinds\.0: .*; correct or delete/)
})

test('a label that cannot be written is a failure', async () => {
  const directory = join(fresh(), 'file')
  writeFileSync(directory, '')
  const written = await appendLabel(directory, label('0/q1/0', ['other']))
  expect(!written.ok && written.failure.message).toMatch(/writing .*labels\.jsonl/)
})
