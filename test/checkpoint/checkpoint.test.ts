import { execFileSync, spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import type { Checkpoint } from '../../src/checkpoint/checkpoint.ts'
import { latestCheckpoint, loadCheckpoint, saveCheckpoint, stepDirectory } from '../../src/checkpoint/checkpoint.ts'
import { failureOf, writeFlushed } from '../../src/checkpoint/durable.ts'
import type { NamedTensors } from '../../src/checkpoint/safetensors.ts'
import { openTensors, readSafetensors, safetensorsBytes, writeSafetensors } from '../../src/checkpoint/safetensors.ts'

const scratch = mkdtempSync(join(tmpdir(), 'checkpoint-'))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

const golden = resolve(import.meta.dirname, '../golden/trl-grpo/tiny-qwen2')

/** Every kind of float32 there is, by its bits. */
const awkwardBits = [0x00000000, 0x80000000, 0x00000001, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00001, 0x3dcccccd]

function tensors(): NamedTensors {
  return new Map([
    ['b.weight', { shape: [2, 4], data: new Float32Array(new Uint32Array(awkwardBits).buffer) }],
    ['a.bias', { shape: [3], data: new Float32Array([1, 2, 3]) }],
    ['scalar', { shape: [], data: new Float32Array([7]) }],
    // A view that starts inside a larger buffer, as slices of one weight block do.
    ['view', { shape: [2], data: new Float32Array([0, 5, 6, 0]).subarray(1, 3) }],
  ])
}

function bits(data: Float32Array): number[] {
  return [...new Uint32Array(data.slice().buffer)]
}

function checkpoint(step: number): Checkpoint {
  return {
    config: { model_type: 'qwen2', hidden_size: 8 },
    generationConfig: { eos_token_id: 2 },
    tokenizer: { version: '1.0', model: { type: 'WordLevel', vocab: { 'é中😀': 0 } } },
    tokenizerConfig: { eos_token: '<|end|>' },
    chatTemplate: '{% for m in messages %}{{ m.content }}\n{% endfor %}',
    weights: tensors(),
    training: { state: { step, cursor: [1, 2], loss: 0.1 + 0.2, seed: 'a/1' }, optimizer: tensors() },
  }
}

function value<T>(result: { ok: true; value: T } | { ok: false; failure: { message: string } }): T {
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}

describe('safetensors', () => {
  test('a round trip keeps every bit, and equal tensors give equal files', async () => {
    const path = join(scratch, 'bits.safetensors')
    value(await writeSafetensors(path, tensors()))
    const back = value(await readSafetensors(path))
    expect([...back.keys()].sort()).toEqual(['a.bias', 'b.weight', 'scalar', 'view'])
    expect(bits(back.get('b.weight')!.data)).toEqual(awkwardBits)
    expect(back.get('b.weight')!.shape).toEqual([2, 4])
    expect([...back.get('view')!.data]).toEqual([5, 6])
    const again = join(scratch, 'again.safetensors')
    value(await writeSafetensors(again, new Map([...back].reverse())))
    expect(readFileSync(again).equals(readFileSync(path))).toBe(true)
    expect(readdirSync(scratch).filter((name) => name.endsWith('.partial'))).toEqual([])
  })

  test('F16 and BF16 are widened', async () => {
    const path = join(scratch, 'half.safetensors')
    // binary16: 1, -2, 65504 (largest), 2^-24 (smallest), infinity; bfloat16: 1, -3.140625
    const half = new Uint16Array([0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00])
    const brain = new Uint16Array([0x3f80, 0xc049])
    writeRaw(
      path,
      {
        h: { dtype: 'F16', shape: [5], data_offsets: [0, 10] },
        b: { dtype: 'BF16', shape: [2], data_offsets: [10, 14] },
      },
      [half, brain],
    )
    const back = value(await readSafetensors(path))
    expect([...back.get('h')!.data]).toEqual([1, -2, 65504, 2 ** -24, Number.POSITIVE_INFINITY])
    expect([...back.get('b')!.data]).toEqual([1, -3.140625])
  })

  test('saved in 16 bits: what was 16 bits keeps every bit, the rest is rounded to even', async () => {
    const path = join(scratch, 'narrow.safetensors')
    const every = Uint16Array.from({ length: 65_536 }, (_, bits) => bits)
    const isNumber = (bits: number, exponent: number) => (bits & exponent) !== exponent
    for (const [type, exponent] of [
      ['F16', 0x7c00],
      ['BF16', 0x7f80],
    ] as const) {
      writeRaw(path, { x: { dtype: type, shape: [65_536], data_offsets: [0, 131_072] } }, [every])
      const wide = value(await readSafetensors(path))
      const bytes = Buffer.concat([...safetensorsBytes(wide, type)])
      const back = new Uint16Array(
        bytes.buffer.slice(bytes.byteOffset + bytes.length - 131_072, bytes.byteOffset + bytes.length),
      )
      const kept = every.filter((bits) => isNumber(bits, exponent))
      expect(kept.every((bits) => back[bits] === bits)).toBe(true)
    }
    // 2049 lies between 2048 and 2050, whose last bit is 0 and 1; 2051 between 2050 and 2052. bfloat16 has 8 bits: 257, 259.
    const halves = (type: 'F16' | 'BF16', numbers: number[]) => {
      const tensor = { shape: [numbers.length], data: Float32Array.from(numbers) }
      const [, data] = [...safetensorsBytes(new Map([['x', tensor]]), type)]
      writeRaw(path, { x: { dtype: type, shape: tensor.shape, data_offsets: [0, data!.length] } }, [data!])
      return readSafetensors(path).then((result) => [...value(result).get('x')!.data])
    }
    expect(await halves('F16', [2049, 2051, 65_519, 65_520, -1e-9])).toEqual([2048, 2052, 65_504, Infinity, -0])
    expect(await halves('BF16', [257, 259, 0.1, NaN])).toEqual([256, 260, 0.10009765625, NaN])
  })

  test('an opened file is read tensor by tensor, and not after it was replaced', async () => {
    const path = join(scratch, 'lazy.safetensors')
    value(await writeSafetensors(path, tensors()))
    const opened = openTensors(path)
    expect([...opened.keys()].sort()).toEqual(['a.bias', 'b.weight', 'scalar', 'view'])
    expect(opened.shapes.get('b.weight')).toEqual([2, 4])
    expect([...opened].map(([name, { data }]) => [name, data.length])).toContainEqual(['b.weight', 8])
    expect(opened.get('a.bias')).toEqual({ shape: [3], data: new Float32Array([1, 2, 3]) })
    expect(opened.get('c')).toBeUndefined()
    utimesSync(path, 1, 1)
    expect(() => opened.get('a.bias')).toThrow(/lazy\.safetensors was replaced/)
  })

  test('shards are read through their index; a tensor that no shard holds is an error', async () => {
    const directory = join(scratch, 'shards')
    mkdirSync(directory)
    value(
      await writeSafetensors(
        join(directory, 'one.safetensors'),
        new Map([['x', { shape: [1], data: new Float32Array([1]) }]]),
      ),
    )
    value(
      await writeSafetensors(
        join(directory, 'two.safetensors'),
        new Map([['y', { shape: [1], data: new Float32Array([2]) }]]),
      ),
    )
    const index = join(directory, 'model.safetensors.index.json')
    writeFileSync(index, JSON.stringify({ weight_map: { x: 'one.safetensors', y: 'two.safetensors' } }))
    expect([...value(await readSafetensors(index)).get('y')!.data]).toEqual([2])
    writeFileSync(index, JSON.stringify({ weight_map: { x: 'one.safetensors', z: 'two.safetensors' } }))
    expect(await readSafetensors(index)).toMatchObject({
      ok: false,
      failure: { kind: 'bad_file', message: expect.stringContaining('no shard holds tensor z') },
    })
  })

  test.each([
    ['absent', null, 'missing_file', 'no such file'],
    ['empty', '', 'bad_file', '0 bytes'],
    ['text', 'this is not a tensor file at all', 'bad_file', 'header'],
  ])('%s file: a failure that names it', async (name, content, kind, words) => {
    const path = join(scratch, `${name}.safetensors`)
    if (content !== null) writeFileSync(path, content)
    const result = await readSafetensors(path)
    expect(result).toMatchObject({ ok: false, failure: { boundary: 'checkpoint', kind } })
    if (!result.ok) {
      expect(result.failure.message).toContain(path)
      expect(result.failure.message).toContain(words)
      expect(result.failure.message).not.toContain('\n')
    }
  })

  test('a truncated file, a wrong shape and an unknown dtype are refused', async () => {
    const path = join(scratch, 'cut.safetensors')
    value(await writeSafetensors(path, tensors()))
    truncateSync(path, readFileSync(path).length - 4)
    expect(await readSafetensors(path)).toMatchObject({
      ok: false,
      failure: { kind: 'bad_file', message: expect.stringContaining('ends at byte') },
    })
    writeRaw(path, { w: { dtype: 'F32', shape: [3], data_offsets: [0, 4] } }, [new Float32Array(1)])
    expect(await readSafetensors(path)).toMatchObject({
      ok: false,
      failure: { message: expect.stringContaining('tensor w has 4 bytes for shape [3]') },
    })
    writeRaw(path, { w: { dtype: 'I64', shape: [1], data_offsets: [0, 8] } }, [new Float32Array(2)])
    expect(await readSafetensors(path)).toMatchObject({
      ok: false,
      failure: { message: expect.stringContaining('I64') },
    })
  })
})

describe('checkpoints', () => {
  test('a round trip gives back everything, bit by bit', async () => {
    const directory = join(scratch, 'run', 'step-000001')
    value(await saveCheckpoint(directory, checkpoint(1)))
    const back = value(await loadCheckpoint(directory))
    const { weights, training, ...rest } = checkpoint(1)
    expect(back).toMatchObject(rest)
    expect(back.training!.state).toEqual(training!.state)
    for (const [name, tensor] of weights) {
      expect(bits(back.weights.get(name)!.data)).toEqual(bits(tensor.data))
      expect(bits(back.training!.optimizer.get(name)!.data)).toEqual(bits(tensor.data))
    }
  })

  test('the files of the tokenizer are saved byte by byte, unknown keys stay, and the element type is declared', async () => {
    const source = join(scratch, 'source')
    const target = join(scratch, 'target')
    value(await saveCheckpoint(source, { ...checkpoint(1), training: null }, 'bfloat16'))
    // Spaces, an exponent and an escape that writing JSON anew would change; a file that we do not read at all.
    const odd = {
      'tokenizer.json': '{ "a":1e2,\n"b": "\\u00e9" }',
      'merges.txt': 'a b\r\n',
      'tokenizer.model': '\u0000',
    }
    for (const [name, text] of Object.entries(odd)) writeFileSync(join(source, name), text)
    writeFileSync(join(source, 'config.json'), '{"model_type":"qwen2","torch_dtype":"bfloat16","new_key":{"a":[1]}}')
    const loaded = value(await loadCheckpoint(source))
    expect(loaded.tokenizer).toEqual({ a: 100, b: 'é' })
    value(await saveCheckpoint(target, loaded))
    for (const [name, text] of Object.entries(odd)) expect(readFileSync(join(target, name), 'utf8')).toBe(text)
    const config = JSON.parse(readFileSync(join(target, 'config.json'), 'utf8'))
    expect(config).toEqual({ model_type: 'qwen2', torch_dtype: 'float32', new_key: { a: [1] } })
    expect(value(await loadCheckpoint(target)).weights.get('a.bias')!.data).toEqual(new Float32Array([1, 2, 3]))
  })

  test('an adapter is saved alone and loaded with the base that it names', async () => {
    const base = join(scratch, 'adapters', 'base')
    const own = stepDirectory(join(scratch, 'adapters', 'run'), 4)
    value(await saveCheckpoint(base, { ...checkpoint(1), training: null }))
    const files = value(await loadCheckpoint(base))
    const weights: NamedTensors = new Map([['x.lora_A.weight', { shape: [1, 2], data: new Float32Array([3, 4]) }]])
    const adapter = { config: { peft_type: 'LORA', base_model_name_or_path: base, later_key: 1 }, weights }
    value(await saveCheckpoint(own, { ...files, adapter, training: checkpoint(4).training }))
    expect(readdirSync(own).sort()).toEqual([
      'adapter_config.json',
      'adapter_model.safetensors',
      'optimizer.safetensors',
      'training_state.json',
    ])
    expect(await latestCheckpoint(join(scratch, 'adapters', 'run'))).toMatchObject({ step: 4 })
    for (const back of [value(await loadCheckpoint(own)), value(await loadCheckpoint(base, own))]) {
      expect(back.adapter).toEqual(adapter)
      expect(back.weights.get('a.bias')!.data).toEqual(new Float32Array([1, 2, 3]))
      expect(back.training!.state).toMatchObject({ step: 4 })
      expect(back.config.model_type).toBe('qwen2')
    }
    // As PEFT does when it is given a path from the adapter's own folder, or a name of the hub.
    const name = (path: string) =>
      writeFileSync(join(own, 'adapter_config.json'), JSON.stringify({ base_model_name_or_path: path }))
    name('../../base')
    expect(value(await loadCheckpoint(own)).config.model_type).toBe('qwen2')
    name('Qwen/Qwen2.5-0.5B')
    expect(await loadCheckpoint(own)).toMatchObject({
      ok: false,
      failure: { kind: 'missing_file', message: expect.stringMatching(/"Qwen\/Qwen2\.5-0\.5B".*policy\.adapter/) },
    })
    truncateSync(join(own, 'adapter_model.safetensors'), 20)
    expect(await latestCheckpoint(join(scratch, 'adapters', 'run'))).toBeNull()
  })

  test('saving again replaces the old one and leaves nothing else behind', async () => {
    const run = join(scratch, 'replace')
    value(await saveCheckpoint(stepDirectory(run, 3), checkpoint(1)))
    value(await saveCheckpoint(stepDirectory(run, 3), { ...checkpoint(2), tokenizer: null }))
    expect(readdirSync(run)).toEqual(['step-000003'])
    const back = value(await loadCheckpoint(stepDirectory(run, 3)))
    expect(back.training!.state).toMatchObject({ step: 2 })
    expect(back.tokenizer).toBeNull()
  })

  test('the newest whole checkpoint wins over newer halves', async () => {
    const run = join(scratch, 'latest')
    expect(await latestCheckpoint(run)).toBeNull()
    for (const step of [9, 10, 11, 12]) value(await saveCheckpoint(stepDirectory(run, step), checkpoint(step)))
    rmSync(join(stepDirectory(run, 12), 'training_state.json'))
    truncateSync(join(stepDirectory(run, 11), 'model.safetensors'), 200)
    mkdirSync(join(run, 'step-000013.partial'))
    expect(await latestCheckpoint(run)).toEqual({ step: 10, directory: stepDirectory(run, 10) })
  })

  test('killed while saving: the old checkpoint stays, the half one is not taken', async () => {
    const run = join(scratch, 'killed')
    value(await saveCheckpoint(stepDirectory(run, 1), checkpoint(1)))
    const script = join(scratch, 'kill.mts')
    // The optimizer is written after the weights: reading its tensors kills the process in the middle of saving.
    writeFileSync(
      script,
      `import { loadCheckpoint, saveCheckpoint } from ${JSON.stringify(join(process.cwd(), 'src/checkpoint/checkpoint.ts'))}
       const result = await loadCheckpoint(process.argv[2])
       if (!result.ok) process.exit(3)
       result.value.training.optimizer = { *[Symbol.iterator]() { process.kill(process.pid, 'SIGKILL') } }
       await saveCheckpoint(process.argv[3], result.value)`,
    )
    const child = spawnSync(
      process.execPath,
      ['--import', 'tsx', script, stepDirectory(run, 1), stepDirectory(run, 2)],
      { encoding: 'utf8' },
    )
    expect(child.signal, child.stderr).toBe('SIGKILL')
    expect(existsSync(join(`${stepDirectory(run, 2)}.partial`, 'model.safetensors'))).toBe(true)
    expect(await latestCheckpoint(run)).toMatchObject({ step: 1 })
    value(await saveCheckpoint(stepDirectory(run, 2), checkpoint(2)))
    expect(await latestCheckpoint(run)).toMatchObject({ step: 2 })
    expect(readdirSync(run).sort()).toEqual(['step-000001', 'step-000002'])
  })

  test('missing pieces are named', async () => {
    expect(await loadCheckpoint(join(scratch, 'nowhere'))).toMatchObject({
      ok: false,
      failure: { kind: 'missing_file', message: expect.stringContaining('nowhere does not exist') },
    })
    const directory = join(scratch, 'pieces')
    value(await saveCheckpoint(directory, checkpoint(1)))
    writeFileSync(join(directory, 'tokenizer.json'), '{"a":')
    expect(await loadCheckpoint(directory)).toMatchObject({
      ok: false,
      failure: { kind: 'bad_file', message: expect.stringContaining('tokenizer.json: expected JSON') },
    })
    rmSync(join(directory, 'tokenizer.json'))
    rmSync(join(directory, 'model.safetensors'))
    expect(await loadCheckpoint(directory)).toMatchObject({
      ok: false,
      failure: { kind: 'missing_file', message: expect.stringContaining('model.safetensors') },
    })
    writeFileSync(join(directory, 'pytorch_model.bin'), '')
    expect(await loadCheckpoint(directory)).toMatchObject({
      ok: false,
      failure: { message: expect.stringContaining('pytorch_model.bin is not read') },
    })
  })

  test.skipIf(!existsSync('/dev/full'))('a full disk is a typed failure', async () => {
    const error = await writeFlushed('/dev/full', [new Uint8Array(10)]).catch((caught: unknown) => caught)
    expect(failureOf(error, 'saving checkpoint step-000001')).toMatchObject({
      boundary: 'checkpoint',
      kind: 'disk_full',
      message: expect.stringContaining('step-000001'),
    })
  })

  test('a full disk leaves the old checkpoint and no half one', async ({ skip }) => {
    const disk = join(scratch, 'disk')
    mkdirSync(disk)
    try {
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', disk], { stdio: 'pipe' })
    } catch {
      skip('needs the right to mount a small file system')
    }
    try {
      value(await saveCheckpoint(stepDirectory(disk, 1), checkpoint(1)))
      const large: Checkpoint = {
        ...checkpoint(2),
        weights: new Map([['w', { shape: [100_000], data: new Float32Array(100_000) }]]),
      }
      expect(await saveCheckpoint(stepDirectory(disk, 2), large)).toMatchObject({
        ok: false,
        failure: { kind: 'disk_full' },
      })
      expect(readdirSync(disk)).toEqual(['step-000001'])
      expect(await latestCheckpoint(disk)).toMatchObject({ step: 1 })
    } finally {
      execFileSync('umount', [disk])
    }
  })

  test('reads a Hugging Face directory written by transformers', async () => {
    const back = value(await loadCheckpoint(golden))
    expect(back.config.model_type).toBe('qwen2')
    expect(back.weights.get('model.embed_tokens.weight')!.shape).toEqual([347, 64])
    expect(back.chatTemplate).toContain('<|im_start|>')
    expect(back.training).toBeNull()
  })
})

function writeRaw(path: string, header: object, parts: ArrayBufferView[]): void {
  const json = Buffer.from(JSON.stringify(header))
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(json.length))
  writeFileSync(
    path,
    Buffer.concat([length, json, ...parts.map((part) => Buffer.from(part.buffer, part.byteOffset, part.byteLength))]),
  )
}
