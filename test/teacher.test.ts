import { expect, test } from 'vitest'
import { oracleAction, oraclePolicy, readSituation, rightQuery } from '../src/teacher.ts'
import type { Gold, Message, Question } from '../src/types.ts'

const question: Question = {
  qid: '107',
  episodeId: 'mini_s01e01',
  text: 'what does the sign say at riverton ?',
  options: ['hotel', 'bank', 'museum', 'cinema', 'garage'],
}
const gold: Gold = { qid: '107', answer: 2, clipId: 'mini_s01e01_seg01_clip_04', span: null, kind: 'visual' }
const user = (content: string): Message => ({ role: 'user', content })
const first = user('question : what does the sign say at riverton ?\n<turns_left_4>')
const wrongClip = user('<seg01_clip_01>\nmira : hello .\n</seg01_clip_01>\n<turns_left_3>')
const rightClip = user('<seg01_clip_04>\nmira : this place is riverton .\n</seg01_clip_04>\n<turns_left_2>')
const sight = user('<information>the sign says museum .</information>\n<turns_left_1>')

test('a situation is read from what was shown', () => {
  expect(rightQuery(question)).toBe('sign')
  expect(readSituation([first], question, gold)).toEqual({ turnsLeft: 4, atGold: false, seen: false, anyClip: false })
  expect(readSituation([first, wrongClip], question, gold)).toMatchObject({ atGold: false, anyClip: true })
  expect(readSituation([first, wrongClip, rightClip], question, gold)).toMatchObject({ atGold: true, seen: false })
  expect(readSituation([first, wrongClip, rightClip, sight], question, gold)).toMatchObject({
    seen: true,
    turnsLeft: 1,
  })
  // the right word seen in a wrong clip proves nothing
  expect(readSituation([first, wrongClip, sight], question, gold)).toMatchObject({ seen: false })
})

test('the oracle grounds, looks, answers, and guesses when time runs out before it was shown', async () => {
  const policy = oraclePolicy(new Map([['107', question]]), new Map([['107', gold]]))
  const say = async (...messages: Message[]) => {
    const sampling = { temperature: 0, maxTokens: 9, stop: [] }
    const said = await policy.generate({ messages, sampling, seed: '', session: '0/107/0' })
    return said.ok ? said.value.text : said.failure.message
  }
  expect(await say(first)).toBe('<request_grounding/>')
  expect(await say(first, wrongClip)).toBe('<request_grounding/>')
  expect(await say(first, wrongClip, rightClip)).toBe('<visual_query>sign</visual_query>')
  expect(await say(first, wrongClip, rightClip, sight)).toBe('<answer>a2</answer>')
  const late = { turnsLeft: 1, atGold: true, seen: false, anyClip: true }
  expect(oracleAction(late, question, gold, 4)).toBe('<answer>a4</answer>')
})
