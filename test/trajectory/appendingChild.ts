/** Started by the tests of the store: appends groups one after another and says so, until it is done, killed, or out of room. */
import { openStore } from '../../src/trajectory/store.ts'
import { madeGroup } from './groups.ts'

const [directory, count, size] = process.argv.slice(2) as [string, string, string]
const opened = await openStore(directory, { resume: true })
if (!opened.ok) throw new Error(opened.failure.message)
const store = opened.value
console.log(`open ${[...store.groupIds].join(' ')}`)
for (let index = 0; index < Number(count); index++) {
  const group = madeGroup(0, index, Number(size))
  if (store.groupIds.has(group.group.id)) continue
  const stored = await store.append([group])
  if (!stored.ok) {
    console.log(`failure ${JSON.stringify(stored.failure)}`)
    process.exit(0)
  }
  console.log(`stored ${group.group.id}`)
}
const closed = await store.close()
console.log(closed.ok ? 'closed' : `failure ${JSON.stringify(closed.failure)}`)
