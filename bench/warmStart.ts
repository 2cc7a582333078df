/**
 * `npm run bench -- warmStart --config configs/smollm2.yaml --out <directory> [--steps 40] [--rows 8] [--learning-rate 0.0005]`: a LoRA
 * adapter that teaches a pretrained model to write the actions, and nothing else. The teacher uses tools at random; before an answer it
 * writes the words of an option, drawn from all five, and answers with that option's label. So accuracy stays at chance, and what it
 * gains later is GRPO's. Transcripts come from the training questions and the agents of the configuration, whose `policy.adapter` names
 * the result. Prints JSON lines: mean cross-entropy of the taught tokens, and the share of them that was likeliest.
 */
import { parseArgs } from 'node:util'
import seedrandom from 'seedrandom'
import { saveCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { loadConfig } from '../src/config.ts'
import { openTrainer } from '../src/grpo/deviceTrainer.ts'
import { supervisedOptions } from '../src/grpo/options.ts'
import { superviseBatch } from '../src/grpo/supervised.ts'
import { openRun } from '../src/open.ts'
import { withTrained } from '../src/policy/adapter.ts'
import { type Script, ScriptedPolicy } from '../src/policy/scripted.ts'
import { createProgress } from '../src/progress.ts'
import { rollout } from '../src/rollout/index.ts'
import { batch } from '../src/stepBatches.ts'
import { ACTIONS } from '../src/teacher.ts'
import type { Result } from '../src/types.ts'

const { values: words } = parseArgs({
  options: {
    config: { type: 'string', default: 'configs/smollm2.yaml' },
    out: { type: 'string' },
    steps: { type: 'string', default: '40' },
    rows: { type: 'string', default: '8' },
    'learning-rate': { type: 'string', default: '0.0005' },
  },
})
if (words.out === undefined) throw new Error('--out: expected the directory of the new adapter')
const [steps, rows] = [Number(words.steps), Number(words.rows)]

const signal = new AbortController().signal
const config = need(await loadConfig(words.config, ['policy.adapter=null', 'policy.lora={}']))
const run = need(await openRun(config, createProgress(process.stderr), signal))
if (run.trainable === null) throw new Error('policy.type: expected checkpoint')
const { policy, files } = run.trainable
const tasks = run.dataset.tasks()
const options = new Map(tasks.map(({ question }) => [question.qid, question.options]))
const teacher: Script = (messages, { seed, session }) => {
  const random = seedrandom(`warm start/${seed}`)
  const pick = (count: number) => Math.floor(random() * count)
  const isLast = messages.at(-1)!.content.includes('<turns_left_1>')
  if (isLast || random() < 0.5) {
    // the session is {step}/{qid}/{sample}
    const words = options.get(session!.split('/')[1]!)!
    const option = pick(words.length)
    return `<reasoning>${words[option]}</reasoning>${ACTIONS.answer(option)}`
  }
  return random() < 0.5 ? ACTIONS.ground : ACTIONS.look(['sign', 'color', 'object'][pick(3)]!)
}
const master = new ScriptedPolicy(teacher, { tokenizer: policy.tokenizer })
const trainer = await openTrainer(policy.device, policy.config)
const supervised = supervisedOptions.parse({ learningRate: Number(words['learning-rate']), schedule: 'linear' })
for (let step = 0; step < steps; step += 1) {
  const drawn = batch(tasks, { seed: config.seed, training: { ...config.training, tasksPerStep: rows } }, step)
  const shown = await rollout(drawn, {
    ...run,
    policy: master,
    options: { ...config.rollout, groupSize: 1 },
    step,
    runSeed: config.seed,
  })
  const segments = shown.flatMap(({ trajectories }) => trajectories.flatMap((trajectory) => trajectory.segments))
  const lessons = segments.map(({ ids, actionMask }) => ({ ids, weights: actionMask }))
  const { loss, kinds } = await superviseBatch(trainer, lessons, supervised, { totalSteps: steps })
  console.log(JSON.stringify({ bench: 'warmStart', step, rows: lessons.length, loss, accuracy: kinds.all!.accuracy }))
}
const { weights } = await trainer.save()
need(await saveCheckpoint(words.out, { ...withTrained(files, weights), training: null }))
await trainer.close()
await run.close()

function need<T>(result: Result<T>): T {
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}
