/** A command that hears Ctrl-C and goes on regardless. */
import { onInterrupt } from '../../src/interrupt.ts'

const { signal } = onInterrupt()
signal.addEventListener('abort', () => console.log('asked to stop'))
console.log('ready')
setTimeout(() => {}, 30_000)
