/**
 * `npm run golden -- DIR`: holds our training against another implementation's, kept in DIR (see compare.ts). Prints one JSON line per
 * check; ends with code 1 when one is not ok, and 2 when DIR has another layout.
 */

import { resolve } from 'node:path'
import { compareFolder } from './compare.ts'

const [directory, ...rest] = process.argv.slice(2)
if (directory === undefined || rest.length > 0) {
  console.error('Usage: npm run golden -- DIR')
  process.exit(2)
}
try {
  // npm starts scripts in the repository; DIR is meant from where it was typed
  for await (const check of compareFolder(resolve(process.env.INIT_CWD ?? '.', directory))) {
    console.log(JSON.stringify(check))
    if (!check.ok) process.exitCode = 1
  }
} catch (error) {
  console.error((error as Error).message)
  process.exitCode = 2
}
