/** The pages over HTTP, without a browser: what is sent and what is not, labels, pictures, a run that is being written. */
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { labelsPath, readLabels } from '../../src/trajectory/labels.ts'
import { writeRatios } from '../../src/trajectory/ratios.ts'
import { openStore } from '../../src/trajectory/store.ts'
import { findStores } from '../../src/trajectory/stores.ts'
import { viewOptions } from '../../src/view/options.ts'
import { openRunIndex } from '../../src/view/runIndex.ts'
import { createViewer } from '../../src/view/server.ts'
import type { ViewedFolder, ViewSources } from '../../src/view/sources.ts'
import { partsOf } from '../../src/view/trajectoryPage.ts'
import { madeGroup } from '../trajectory/groups.ts'
import { type MadeRun, writeMadeRun } from './madeRun.ts'

const root = mkdtempSync(join(tmpdir(), 'view-pages-'))
const directory = join(root, 'run')
const made: MadeRun = { trajectories: 600, groupSize: 6, groupsPerStep: 25, reasoningWords: 8 }
type Server = ReturnType<typeof createViewer>
let server: Server

/** Everything that only gold knows is spelled so that it can be found in a page. */
const sources: ViewSources = {
  clips: () => [
    { id: 'e1_seg01_clip_00', start: 0, end: 10 },
    { id: 'e1_seg01_clip_01', start: 10, end: 30 },
  ],
  gold: () => ({ answer: 2, clipId: 'e1_seg01_clip_01', span: [5, 10] }),
  picture: async ({ hash }) => ({ ok: true, value: { bytes: Buffer.from(`picture ${hash}`), type: 'image/png' } }),
  unchanged: async ({ at }) => at !== 61.5,
  tokens: async () => ({ ok: true, value: (ids) => ids.map((id) => `<tok${id}>`) }),
  plannedSteps: 40,
  labeller: 'ada',
}

/** `run` is the folder of a run, which may have stores in it. */
async function viewerOf(run: string): Promise<Server> {
  const folder: ViewedFolder = {
    name: basename(run),
    stores: async () => (await findStores(run)).map((path) => ({ path, label: path === '' ? 'own' : `cell ${path}` })),
    async open(path) {
      const index = await openRunIndex(join(run, path))
      return index.ok ? { ok: true, value: { index: index.value, sources } } : index
    },
    report: async () => ({ ok: false, failure: { boundary: 'store', kind: 'missing_file', message: 'no report' } }),
  }
  // patience enough that a page is never cut short on a busy machine
  return createViewer(folder, { ...viewOptions.parse({}), patienceMs: 60_000 })
}

beforeAll(async () => {
  await writeMadeRun(directory, made)
  server = await viewerOf(directory)
})
afterAll(async () => {
  await server.close()
  rmSync(root, { recursive: true, force: true })
})

const get = (url: string, from = server, host = '127.0.0.1:4000') =>
  from.inject({ method: 'GET', url, headers: { host } })
async function body(url: string, from = server): Promise<string> {
  const { statusCode, body } = await get(url, from)
  expect(statusCode, url).toBe(200)
  return body
}

describe('gold is not sent before it is asked for', () => {
  const telling = /right answer|✓|✕|class="outcome|reward-title|>R<|advantage|band|evidence:|dialogue|visual<|1\.10/
  /** Less what every page says, right or wrong: keys, the names of filters and labels. */
  const own = (page: string) =>
    page.replace(/<dialog id="help"[\s\S]*?<\/dialog>/, '').replace(/<form class="(filters|label)"[\s\S]*?<\/form>/, '')

  test.each(['/', '/?q=kite', '/?stop=answered&turns=3', '/t/1/q3/4', '/t/0/q2/1', '/tokens/1/q3/4', '/training'])(
    '%s',
    async (url) => {
      const page = own(await body(url))
      const tile = /<div title="over all trajectories[^"]*"><dt>accuracy[\s\S]*?<\/div>/
      expect(page.replace(tile, '')).not.toMatch(telling)
    },
  )

  test.each(['/?gold=1', '/?outcome=wrong', '/?kind=visual', '/?least=1', '/t/1/q3/4?gold=1', '/training?gold=1'])(
    '%s does ask',
    async (url) => {
      expect(own(await body(url))).toMatch(telling)
    },
  )

  test('with gold, right answer, evidence, reward by part and advantages are there', async () => {
    const page = await body('/t/1/q3/4?gold=1')
    expect(page).toContain('right answer')
    expect(page).toContain('evidence: seg01_clip_01, 5.0 to 10.0 s')
    // the span 5 to 10 s of a clip that begins at 10 of 30 s
    expect(page).toContain('class="band" style="left:50.000%;width:16.667%"')
    for (const part of ['answer', 'format', 'turn cost', 'total', 'advantage']) expect(page).toContain(`>${part}</th>`)
  })

  test('links keep gold as it is', async () => {
    expect(await body('/')).not.toContain('gold=1"><')
    expect(await body('/?gold=1&turns=2')).toContain('/t/0/q0/1?turns=2&amp;gold=1')
  })
})

describe('lists', () => {
  test('count, page and link', async () => {
    const page = await body('/?stop=answered&page=2')
    expect(page).toContain('<strong>400</strong> of <strong>600</strong> trajectories')
    expect(page).toContain('Page 2 of 8')
    expect(page).toContain('href="/?stop=answered&amp;page=3"')
    expect(page.match(/<td class="question">/g)).toHaveLength(50)
    expect(await body('/?stop=answered&page=999')).toContain('Page 8 of 8')
    expect(await body('/?turns=77')).toContain('No trajectory is like that')
  })

  test('newest first begins with the last', async () => {
    expect(/\/t\/[^"?]+/.exec(await body('/?order=newest'))?.[0]).toBe('/t/3/q24/5')
  })

  test('a trajectory knows its neighbours in the list it was opened from', async () => {
    // answered ones of the first group are the samples 0 to 3, then 0 to 3 of the next
    const page = await body('/t/0/q0/3?stop=answered')
    expect(page).toContain('4 of 400')
    expect(page).toContain('data-key-n="/t/0/q1/0?stop=answered"')
    expect(page).toContain('data-key-p="/t/0/q0/2?stop=answered"')
    expect(await body('/t/0/q0/4?stop=answered')).not.toContain('data-key-n')
  })

  test('what is asked wrongly is told', async () => {
    for (const [url, status, said] of [
      ['/?outcome=maybe', 400, 'outcome'],
      ['/?page=0', 400, 'page'],
      ['/t/9/q9/9', 404, 'There is no trajectory 9/q9/9'],
      ['/t/0/q0', 404, 'There is no trajectory'],
      ['/nothing', 404, 'There is no page /nothing'],
      ['/frames/0/q0/0?turn=0&frame=0', 404, 'No picture is recorded'],
      ['/frames/0/q0/0?turn=-1&frame=0', 400, 'turn'],
      ['/assets/../server.ts', 404, 'There is no page'],
      ['/report', 404, 'no report'],
    ] as const) {
      const answer = await get(url)
      expect([url, answer.statusCode]).toEqual([url, status])
      expect(answer.body).toContain(said)
    }
  })

  test('text of a run is text, never markup', async () => {
    const run = join(root, 'hostile')
    const store = await openStore(run, { resume: false })
    if (!store.ok) throw new Error(store.failure.message)
    const { group, scored } = madeGroup(0, 1)
    const evil = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
    for (const { trajectory } of scored) {
      Object.assign(trajectory.task.question, { text: evil, options: [evil, evil, evil, evil, evil] })
      for (const turn of trajectory.turns) Object.assign(turn, { response: evil, observation: evil })
    }
    await store.value.append([{ group, scored }])
    await store.value.close()
    const viewer = await viewerOf(run)
    for (const url of ['/', '/?q=%3Cscript%3E', '/t/0/q1/0?gold=1', '/tokens/0/q1/0', '/training'])
      expect(await body(url, viewer)).not.toMatch(/<script>alert|<img src=x/)
    await viewer.close()
  })
})

test('only requests that name this machine are answered', async () => {
  expect((await get('/', server, 'evil.example')).statusCode).toBe(403)
  expect((await get('/', server, '127.0.0.1.evil.example:80')).statusCode).toBe(403)
  expect((await get('/', server, 'localhost:4801')).statusCode).toBe(200)
  const policy = (await get('/')).headers['content-security-policy']
  expect(policy).toContain("default-src 'none'")
  expect(policy).toContain("script-src 'self'")
})

describe('labels', () => {
  const post = (payload: unknown, type = 'application/json') =>
    server.inject({
      method: 'POST',
      url: '/labels',
      headers: { host: '127.0.0.1', 'content-type': type },
      payload: JSON.stringify(payload),
    })
  const label = {
    trajectoryId: '0/q1/2',
    kinds: ['vision_wrong'],
    note: 'a kite, not a bird',
    by: 'ada',
    goldShown: false,
  }

  test('are stored, shown, filtered, changed and withdrawn', async () => {
    expect((await post(label)).statusCode).toBe(200)
    const stored = await readLabels(directory)
    expect(stored.ok && stored.value.get('0/q1/2')).toMatchObject(label)
    expect(await body('/?label=vision_wrong')).toContain('<strong>1</strong> of')
    expect(await body('/?label=any')).toContain('<span class="tag">vision wrong</span>')
    const page = await body('/t/0/q1/2')
    expect(page).toMatch(/value="vision_wrong"[^>]* checked/)
    expect(page).toContain('a kite, not a bird')

    await post({ ...label, kinds: [], note: '' })
    expect(await body('/?label=any')).toContain('<strong>0</strong> of')
    expect(readFileSync(labelsPath(directory), 'utf8').trim().split('\n')).toHaveLength(2)
  })

  test('of nothing, or of nonsense, are refused and nothing is written', async () => {
    const before = readFileSync(labelsPath(directory), 'utf8')
    expect((await post({ ...label, trajectoryId: '7/nothing/0' })).statusCode).toBe(404)
    expect((await post({ ...label, kinds: ['boring'] })).statusCode).toBe(400)
    expect((await post({ ...label, extra: 1 })).statusCode).toBe(400)
    // what a form on another site could send
    expect((await post(label, 'text/plain')).statusCode).toBe(400)
    expect(readFileSync(labelsPath(directory), 'utf8')).toBe(before)
  })

  test('a damaged file of labels is told on the list, which stays', async () => {
    appendFileSync(labelsPath(directory), '{"kinds":5}\n')
    const page = await body('/')
    expect(page).toMatch(/labels\.jsonl: line 3/)
    expect(page).toContain('<strong>600</strong>')
    rmSync(labelsPath(directory))
  })
})

describe('a folder with several stores', () => {
  const folder = join(root, 'several')
  let viewer: Server
  beforeAll(async () => {
    await writeMadeRun(join(folder, 'cells/a~b'), { ...made, trajectories: 12 })
    await writeMadeRun(join(folder, 'cells/c'), { ...made, trajectories: 18 }, { close: false })
    viewer = await viewerOf(folder)
  })
  afterAll(() => viewer.close())

  test('begins with the list of them, also while one is being written', async () => {
    expect((await get('/', viewer)).headers.location).toBe('/stores')
    const page = await body('/stores', viewer)
    expect(page).toMatch(/href="\/in\/cells~a~b\/">cell cells\/a~b<[\s\S]*?>12<[\s\S]*?complete/)
    expect(page).toMatch(/href="\/in\/cells~c\/">cell cells\/c<[\s\S]*?>18<[\s\S]*?not complete/)
    expect(page).toContain('data-follow-after')
  })

  test('a store that cannot be read is told and passed over', async () => {
    const broken = join(folder, 'cells/broken')
    mkdirSync(broken)
    writeFileSync(join(broken, 'trajectories.arrows'), 'no arrow')
    const page = await body('/stores', viewer)
    expect(page).toMatch(/cell cells\/broken<[\s\S]*?cannot be read: [^<]*trajectories\.arrows: expected an Arrow/)
    expect(page).toMatch(/cell cells\/c<[\s\S]*?>18</)
    const told: string[] = []
    expect(await viewer.openStores((trouble) => told.push(trouble))).toHaveLength(2)
    expect(told).toEqual([expect.stringContaining('broken/trajectories.arrows')])
    expect((await get('/in/cells~broken/', viewer)).statusCode).toBe(404)
    rmSync(broken, { recursive: true })
  })

  test('every address in the pages of a store stays within it', async () => {
    for (const path of ['', '?gold=1&page=1', 't/0/q1/2?gold=1', 'tokens/0/q1/2', 'training']) {
      const page = await body(`/in/cells~c/${path}`, viewer)
      const addresses = [...page.matchAll(/ (?:href|src|action|data-key-\w)="([^"#]*)"/g)].map(([, address]) => address)
      expect(addresses.length).toBeGreaterThan(8)
      const other = '/in/cells~a~b/t/0/q1/2'
      for (const address of addresses) expect(address?.replace(other, '/in/cells~c/')).toMatch(/^\/in\/cells~c\//)
    }
    const own = await body('/')
    expect(own).not.toContain('/in/')
    expect(own).not.toContain('Stores</a>')
    expect((await get('/in/cells~c/assets/style.css', viewer)).statusCode).toBe(200)
    expect((await get('/in/cells~d/', viewer)).statusCode).toBe(404)
  })

  test('a trajectory shows what became of its question in the other stores', async () => {
    const page = await body('/in/cells~c/t/0/q1/2', viewer)
    expect(page).toMatch(/Elsewhere[\s\S]*?href="\/in\/cells~a~b\/t\/0\/q1\/2">cell cells\/a~b<[\s\S]*?class="chips"/)
    expect(await body('/in/cells~c/t/0/q1/2?gold=1', viewer)).toContain('href="/in/cells~a~b/t/0/q1/2?gold=1"')
    // a question that only one of them has
    expect(await body('/in/cells~c/t/0/q2/0', viewer)).not.toContain('Elsewhere')
  })

  test('labels lie beside the store they are about', async () => {
    const payload = { trajectoryId: '0/q1/2', kinds: ['other'], note: '', by: 'ada', goldShown: false }
    const headers = { host: '127.0.0.1' }
    expect((await viewer.inject({ method: 'POST', url: '/in/cells~c/labels', headers, payload })).statusCode).toBe(200)
    expect(existsSync(labelsPath(join(folder, 'cells/c')))).toBe(true)
  })
})

describe('pictures and tokens', () => {
  const run = join(root, 'seen')
  let viewer: Server
  beforeAll(async () => {
    const store = await openStore(run, { resume: false })
    if (!store.ok) throw new Error(store.failure.message)
    await store.value.append([madeGroup(0, 1)])
    await store.value.close()
    viewer = await viewerOf(run)
  })
  afterAll(() => viewer.close())

  test('frames that were recorded are shown, and whether their file changed', async () => {
    const page = await body('/t/0/q1/0', viewer)
    expect(page).toContain('The 2 frames')
    expect(page).toContain('The picture was not recorded')
    expect(page).toContain('src="/frames/0/q1/0?turn=2&amp;frame=1"')
    expect(page).toContain('file changed')
    const picture = await get('/frames/0/q1/0?turn=2&frame=1', viewer)
    expect(picture.headers['content-type']).toBe('image/png')
    expect(picture.body).toBe('picture f00d')
  })

  test('tokens carry mask and log-probability, and ratios where the training recorded them', async () => {
    const page = await body('/tokens/0/q1/0', viewer)
    expect(page).toContain('Segment 2 of 2')
    expect(page).toContain('not recorded')
    expect(page).toContain('&lt;tok100006&gt;')
    // position 6 is the first sampled one; its log-probability is -6/64
    expect(page).toContain(`--p:${Math.exp(-6 / 64).toFixed(3)}`)
    const sampled = (length: number) => Array.from({ length }, (_, t) => t).filter((t) => t >= 5 && t % 3 === 0).length
    const ratios = [23, 24].map((length) => Array.from({ length: sampled(length) }, (_, nth) => (nth === 0 ? 0.5 : 1)))
    await writeRatios(run, 0, { '0/q1/0': ratios })
    const with_ = await body('/tokens/0/q1/0', viewer)
    expect(with_).not.toContain('not recorded')
    expect(with_).toContain('class="tok sampled less"')
    expect(with_).toContain('ratio 0.5000')
    rmSync(join(run, 'ratios'), { recursive: true })
  })

  test('a failed run without tokens says so', async () => {
    expect(await body('/tokens/0/q1/2', viewer)).toContain('No tokens are stored')
    expect(await body('/t/0/q1/2', viewer)).toContain('https://example.test answered 500')
  })
})

describe('a run that is being written', () => {
  const run = join(root, 'live')
  const record = (step: number) => ({
    step,
    reward: step / 10,
    accuracy: 0.5,
    turns: 2,
    sampledTokens: 1000,
    secondsRollout: 3,
    secondsUpdate: 1,
    entropy: null,
  })

  test('shows where it is, its pace, its curves and its newest groups; and goes on', async () => {
    await writeMadeRun(run, { ...made, trajectories: 300 }, { close: false })
    writeFileSync(join(run, 'metrics.jsonl'), [0, 1, 2].map((step) => `${JSON.stringify(record(step))}\n`).join(''))
    appendFileSync(join(run, 'metrics.jsonl'), '{"step":3,"rew')
    const viewer = await viewerOf(run)
    const page = await body('/training', viewer)
    expect(page).toContain('Step 3 of 40')
    expect(page).toContain('Running')
    // 4 s per step and 37 steps to go
    expect(page).toContain('<dt>to go</dt><dd>2 min 28 s</dd>')
    expect(page).toContain('<dt>tokens / s</dt><dd>250</dd>')
    expect(page).toMatch(/<svg aria-hidden="true"/)
    expect(page).toContain('data-follow-after="2000"')
    expect(page.match(/<ul class="groups">.*?<h3>([^<]*)/s)?.[1]).toContain('kite number 24')

    await writeMadeRun(run, { ...made, trajectories: 306 }, { from: 50 })
    await new Promise((later) => setTimeout(later, 1100))
    const after = await body('/training', viewer)
    expect(after).toContain('The run is complete')
    expect(after).not.toContain('data-follow-after')
    expect(after).toContain('<dt>trajectories</dt><dd>306</dd>')
    await viewer.close()
  })

  test('held-out questions: their accuracy, its curve, and a visit that is not over keeps the run running', async () => {
    const visited = join(root, 'visited')
    await writeMadeRun(visited, made, { close: false })
    writeFileSync(join(visited, 'metrics.jsonl'), [0, 1].map((step) => `${JSON.stringify(record(step))}\n`).join(''))
    const visits = [
      { step: 0, accuracy: 0.25 },
      { step: 2, accuracy: 0.625 },
    ]
    writeFileSync(join(visited, 'validation.jsonl'), visits.map((visit) => `${JSON.stringify(visit)}\n`).join(''))
    const anHourAgo = new Date(Date.now() - 3_600_000)
    for (const name of ['metrics.jsonl', 'validation.jsonl', 'trajectories.arrows.partial'])
      utimesSync(join(visited, name), anHourAgo, anHourAgo)
    const viewer = await viewerOf(visited)
    const silent = await body('/training', viewer)
    expect(silent).toContain('<dt>held out</dt><dd>62.5 %</dd>')
    expect(silent).toMatch(/Held-out accuracy <strong>0\.625<\/strong>/)
    expect(silent).toContain('Not running')
    mkdirSync(join(visited, 'validation/step-000002'), { recursive: true })
    writeFileSync(join(visited, 'validation/step-000002/trajectories.arrows.partial'), '')
    expect(await body('/training', viewer)).toContain('Running')
    await viewer.close()
  })

  test('after its last step the page follows on until the run is closed', async () => {
    const last = join(root, 'last')
    await writeMadeRun(last, made, { close: false })
    writeFileSync(join(last, 'metrics.jsonl'), `${JSON.stringify(record(39))}\n`)
    const viewer = await viewerOf(last)
    const page = await body('/training', viewer)
    expect(page).toContain('Step 40 of 40. Running')
    expect(page).toContain('data-follow-after="2000"')
    await viewer.close()
  })

  test('a run without metrics shows what it has', async () => {
    const page = await body('/training')
    expect(page).toContain('<dt>trajectories</dt><dd>600</dd>')
    expect(page).not.toContain('Training curves')
    expect(existsSync(join(directory, 'metrics.jsonl'))).toBe(false)
  })
})

test('reasoning is told from the action', () => {
  expect(partsOf('<reasoning>not here</reasoning><request_grounding/>')).toEqual({
    reasoning: 'not here',
    act: '<request_grounding/>',
  })
  expect(partsOf('I should look. <visual_query>sign</visual_query>')).toEqual({
    reasoning: 'I should look.',
    act: '<visual_query>sign</visual_query>',
  })
  expect(partsOf('<think>a\nb</think> so <answer>a1</answer>')).toEqual({
    reasoning: 'a\nb',
    act: 'so <answer>a1</answer>',
  })
  expect(partsOf('no tags at all')).toEqual({ reasoning: '', act: 'no tags at all' })
})
