/** Event files are those that TensorBoard's own writer makes, byte for byte (`scripts/golden/event_file.py`). */
import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { fileHeader, scalarsRecord } from '../src/tensorboard.ts'

test('the bytes are those of TensorBoard 2.21', async () => {
  const ours = Buffer.concat([
    fileHeader(1700000000.5),
    scalarsRecord({ step: 0, wallTime: 1700000001.25, values: { 'train/reward': 0.1, 'train/kl': 0 } }),
    scalarsRecord({
      step: 300,
      wallTime: 1700000002,
      values: { 'train/reward': -1.5e-8, 'validation/accuracy': 0.875 },
    }),
    scalarsRecord({ step: 5_000_000_000, wallTime: 1700000003, values: { 'train/entropy': Number.POSITIVE_INFINITY } }),
  ])
  const theirs = await readFile('test/golden/tensorboard/events.tfevents')
  expect(ours.toString('hex')).toBe(theirs.toString('hex'))
})
