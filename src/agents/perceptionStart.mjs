// Entry of a perception thread: worker threads do not inherit the loader that reads TypeScript, so it is registered here.
import { register } from 'tsx/esm/api'

register()
await import('./perceptionWorker.ts')
