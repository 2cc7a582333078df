/** Who may import whom: the table of the house. When it has to change, change it here and in AGENTS.md in one commit. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { expect, test } from 'vitest'

/** Besides its own files and types.ts. */
const mayImport: Record<string, readonly string[]> = {
  dataset: [],
  video: [],
  reward: [],
  trajectory: [],
  checkpoint: [],
  engine: [],
  agents: ['video'],
  policy: ['engine'],
  systems: [],
  standIns: ['dataset'],
  rollout: ['systems', 'reward', 'trajectory'],
  grpo: ['engine', 'policy'],
  serve: ['policy', 'checkpoint', 'trajectory'],
  report: ['trajectory', 'systems'],
  view: ['trajectory'],
}

const source = resolve(import.meta.dirname, '../src')
const imports = new Map(sourceFiles().map((file) => [file, importsOf(file)]))

/** `root` for files that lie in src/ itself. */
const roomOf = (file: string): string => (file.includes('/') ? (file.split('/')[0] as string) : 'root')

test('the reader of imports sees every form', () => {
  const text = `import a from './a.ts'\nimport type { B } from "../b.ts"\nimport {\n  c,\n} from '../x/c.ts'\nexport * from './d.ts'\nexport { e } from './e.ts'\nimport './f.ts'\nconst g = await import('./g.ts')\nnew Worker(new URL('./h.ts', import.meta.url))\n// import z from './z.ts'\n`
  expect(specifiersOf(text)).toEqual([
    './a.ts',
    '../b.ts',
    '../x/c.ts',
    './d.ts',
    './e.ts',
    './f.ts',
    './g.ts',
    './h.ts',
  ])
})

test('every folder of src/ is a room of the table, and rooms are where the nouns say', () => {
  const rooms = new Set([...imports.keys()].map(roomOf))
  expect([...rooms].filter((room) => room !== 'root' && !(room in mayImport))).toEqual([])
  expect(imports.has('types.ts')).toBe(true)
})

test('types.ts imports nothing', () => {
  expect(imports.get('types.ts')).toEqual([])
})

test('rooms import only what the table allows', () => {
  const forbidden: string[] = []
  for (const [file, targets] of imports) {
    const room = roomOf(file)
    if (room === 'root') continue
    for (const target of targets) {
      const other = roomOf(target)
      const allowed = target === 'types.ts' || other === room || mayImport[room]?.includes(other)
      if (!allowed) forbidden.push(`${file} imports ${target}`)
    }
  }
  expect(forbidden).toEqual([])
})

test('no file imports itself through others', () => {
  expect(cyclesIn(imports)).toEqual([])
  expect(
    cyclesIn(
      new Map([
        ['a', ['b']],
        ['b', ['c']],
        ['c', ['b']],
      ]),
    ),
  ).toEqual([['b', 'c', 'b']])
})

test('the table has no cycle', () => {
  expect(cyclesIn(new Map(Object.entries(mayImport)))).toEqual([])
})

function sourceFiles(): string[] {
  return readdirSync(source, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.m?tsx?$/.test(name))
    .map((name) => name.split(sep).join('/'))
}

/** Files of src/ that a file imports, as paths from src/. */
function importsOf(file: string): string[] {
  const text = readFileSync(join(source, file), 'utf8')
  return specifiersOf(text)
    .filter((specifier) => specifier.startsWith('.'))
    .map((specifier) =>
      relative(source, resolve(source, dirname(file), specifier))
        .split(sep)
        .join('/'),
    )
    .filter((target) => !target.startsWith('..')) // package.json and the like
}

/** Static and dynamic imports, re-exports, and files named by URL (worker threads); comments aside. */
function specifiersOf(text: string): string[] {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$/gm, '')
  const forms =
    /^\s*(?:import|export)\b[^'"`;]*?\bfrom\s*['"]([^'"]+)['"]|^\s*import\s*['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]|\bnew URL\(\s*['"](\.[^'"]+\.ts)['"]/gm
  return [...code.matchAll(forms)].map((match) => match.slice(1).find((part) => part !== undefined) as string)
}

/** One path per cycle found by depth-first search. */
function cyclesIn(edges: ReadonlyMap<string, readonly string[]>): string[][] {
  const done = new Set<string>()
  const cycles: string[][] = []
  const visit = (node: string, path: readonly string[]): void => {
    const at = path.indexOf(node)
    if (at >= 0) {
      cycles.push([...path.slice(at), node])
      return
    }
    if (done.has(node)) return
    for (const next of edges.get(node) ?? []) visit(next, [...path, node])
    done.add(node)
  }
  for (const node of edges.keys()) visit(node, [])
  return cycles
}
