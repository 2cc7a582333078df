/**
 * A process of its own that imports like the command line, and kills itself without warning (SIGKILL) at a given moment: when a stage
 * begins, or has come to a count. `killed.ts <inputs> <out> <stage> <count>`.
 */
import { importDataset } from '../../../src/dataset/import/write.ts'

const [inputs, out, stage, count] = process.argv.slice(2) as [string, string, string, string]
let current = ''
const perhaps = (done: number) => {
  if (current.startsWith(stage) && done >= Number(count)) process.kill(process.pid, 'SIGKILL')
}
const imported = await importDataset({
  inputs: [inputs],
  out,
  as: [],
  untimed: false,
  probe: async () => ({ ok: true, value: { duration: 61, hasVideo: true } }),
  progress: {
    stage(name) {
      current = name
      perhaps(0)
    },
    to: perhaps,
  },
})
if (!imported.ok) throw new Error(imported.failure.message)
