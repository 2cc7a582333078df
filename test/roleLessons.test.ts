/**
 * Lessons in the role of a system, as a policy in that role will read and write them; the stand-ins over told stories, where they should
 * be right nearly always; and the scripts themselves, as a configuration names them.
 */
import { describe, expect, test } from 'vitest'
import { Dice } from '../src/dataset/miniature/story.ts'
import { type Lesson, SPECIAL_TOKENS, VOCABULARY } from '../src/lessons.ts'
import { ScriptedPolicy } from '../src/policy/scripted.ts'
import { openScriptedModule } from '../src/policy/scriptedModule.ts'
import { openTokenizer } from '../src/policy/tokenizer.ts'
import { buildWordTokenizer, extendWordTokenizer } from '../src/policy/wordTokenizer.ts'
import { RoleLessons } from '../src/roleLessons.ts'
import { rollout } from '../src/rollout/index.ts'
import { rolloutOptions } from '../src/rollout/options.ts'
import { Stories, simulatedAgents } from '../src/simulation.ts'
import { standIns } from '../src/standIns/index.ts'
import type { StandIns } from '../src/standIns/standIns.ts'
import { createSystem } from '../src/systems/index.ts'
import { systemsOptions } from '../src/systems/options.ts'

const RATES = { firstGroundingRate: 0.6, nextGroundingRate: 0.95 }
/** As the committed configurations have them. */
const SYSTEMS: Record<string, object> = {
  videoHvAgent: { name: 'videoHvAgent', prompt: 'brief', frames: 24, summaryParts: 1, summaryWords: 30 },
  symphony: {
    name: 'symphony',
    prompt: 'brief',
    segmentSeconds: 5,
    leastRelevance: 3,
    retrievedFrames: 3,
    subtitleLines: 4,
    inspectFrames: 1,
    inspectRetrieved: 1,
    repairs: 0,
  },
}

test('every system with stand-ins is tested here', () => {
  expect(Object.keys(SYSTEMS)).toEqual(Object.keys(standIns))
})

const base = buildWordTokenizer(VOCABULARY, SPECIAL_TOKENS)

function tokenizerOf(tokens: readonly string[]) {
  const tokenizer = extendWordTokenizer(base.tokenizerJson, tokens)
  const { tokenizerConfig, chatTemplate } = base
  const opened = openTokenizer({ tokenizer, tokenizerConfig, chatTemplate, generationConfig: null, config: {} }, 'base')
  if (!opened.ok) throw new Error(opened.failure.message)
  return opened.value
}

describe('a vocabulary with more words', () => {
  test('keeps its ids, puts the further ones behind, and reads quoted keys as one token', () => {
    const before = tokenizerOf([])
    const after = tokenizerOf(['{', '}', '"', '"score"', '<clue>', 'kettle'])
    const text = '<answer>a1</answer> the kettle .'
    expect(after.encode(text)).toEqual(before.encode(text))
    const size = before.vocabularySize
    // { "score" : <clue> " - kettle is known, a colon too
    expect(after.encode('{"score":<clue>"')).toEqual([size, size + 3, before.idOf(':'), size + 4, size + 2])
    expect(after.vocabularySize).toBe(size + 5)
  })

  test('writes JSON that can be read', () => {
    const tokenizer = tokenizerOf(standIns.videoHvAgent?.tokens ?? [])
    const text = tokenizer.decode(tokenizer.encode('{"reasoning_summary":"a2","final_answer":4}'))
    expect(text).toBe('{ "reasoning_summary" : " a2 " , "final_answer" : 4 }')
    expect(JSON.parse(text)).toEqual({ reasoning_summary: ' a2 ', final_answer: 4 })
  })
})

describe.each(Object.entries(standIns))('%s', (name, stand) => {
  const system = createSystem(systemsOptions.parse(SYSTEMS[name]), 'training')
  const tokenizer = tokenizerOf(stand.tokens)
  const lessonsIn = (role: string, seed = 1) =>
    new RoleLessons({ seed, system, role, turns: 4, standIns: stand, tokenizer, rates: RATES })

  describe.each(Object.keys(stand.teachers))('lessons in %s', (role) => {
    test('are prompts and well-formed outputs, ended by the end of a message', async () => {
      const lessons = lessonsIn(role)
      for (let i = 0; i < 40; i++) {
        const { ids, weights } = await lessons.next('acting')
        expect(weights).toHaveLength(ids.length)
        const said = ids.filter((_, t) => weights[t] === 1)
        expect(said.at(-1)).toBe(tokenizer.idOf('<|end|>'))
        // what is taught stands behind where the assistant begins
        expect(ids[weights.indexOf(1) - 1]).toBe(tokenizer.idOf('<|assistant|>'))
      }
    })

    test('reading teaches a part of what acting teaches, at the same places', async () => {
      const [acting, reading] = [lessonsIn(role), lessonsIn(role)]
      for (let i = 0; i < 40; i++) {
        const [all, some] = [await acting.next('acting'), await reading.next('reading')]
        expect(some.ids).toEqual(all.ids)
        const taught = ({ weights }: Lesson) => weights.flatMap((weight, t) => (weight === 1 ? [t] : []))
        expect(taught(some).length).toBeGreaterThan(0)
        expect(taught(some).length).toBeLessThan(taught(all).length)
        expect(taught(all)).toEqual(expect.arrayContaining(taught(some)))
      }
    })

    test('differ with the seed', async () => {
      expect(await lessonsIn(role, 1).next('acting')).not.toEqual(await lessonsIn(role, 2).next('acting'))
    })

    test('name the word that no vocabulary has', async () => {
      const teachers: StandIns['teachers'] = { [role]: () => [{ text: 'a flibbertigibbet' }] }
      const lessons = new RoleLessons({
        seed: 1,
        system,
        role,
        turns: 4,
        standIns: { ...stand, teachers },
        tokenizer,
        rates: RATES,
      })
      await expect(lessons.next('acting')).rejects.toThrow(
        /a word is in no vocabulary, behind ".*; name it in the stand-ins' tokens/s,
      )
    })
  })

  test('scripts in all roles are right nearly always over stories that are told', async () => {
    const stories = new Stories(3)
    const dice = new Dice('test')
    let right = 0
    const runs = 60
    for (let i = 0; i < runs; i++) {
      const told = stories.next()
      const [group] = await rollout([told.task], {
        system,
        policy: new ScriptedPolicy(stand.script),
        agents: simulatedAgents(told, RATES, dice),
        options: rolloutOptions.parse({ groupSize: 1, budget: { turns: 4 } }),
        step: i,
        runSeed: 1,
      })
      const [trajectory] = group?.trajectories ?? []
      expect(trajectory?.failure).toBeNull()
      for (const turn of trajectory?.turns ?? []) expect(turn.wellFormed).toBe(true)
      if (trajectory?.answer === told.gold.answer) right++
    }
    expect(right / runs).toBeGreaterThan(0.85)
  })

  test('the module is the script that a configuration names', async () => {
    const opened = await openScriptedModule(`src/standIns/${name}.ts`)
    expect(opened.ok).toBe(true)
  })
})
