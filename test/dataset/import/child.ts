/** A process of its own: runs the command line with the given words, or opens a data set, and tells on standard error what it took. */
import { main } from '../../../src/cli.ts'
import { openDataset } from '../../../src/dataset/open.ts'

const [what, ...words] = process.argv.slice(2)
const began = performance.now()
if (what === 'open') {
  const opened = await openDataset(words[0] as string)
  if (!opened.ok) throw new Error(opened.failure.message)
  console.error(`tasks ${opened.value.tasks().length}`)
} else process.exitCode = await main(words)
console.error(
  JSON.stringify({ seconds: (performance.now() - began) / 1000, peakMiB: process.resourceUsage().maxRSS / 1024 }),
)
