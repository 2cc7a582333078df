/**
 * Turns what clients sample into trajectories in the rollout store, so that an agent written in any language is a source of rollouts.
 *
 * Calls with the same `X-Session-ID` are one trajectory (conversation.ts). A session is closed by its reward, by being silent for too long,
 * or when the server stops; without a reward the trajectory has none, which is not 0 (spec/pitfalls.md, row 22). Sessions with the same
 * `X-Group-ID` are stored as one group when `X-Group-Size` of them are closed, or when no more of them come. Until then they are in the
 * journal (journal.ts), from which a killed server goes on. Samples nothing.
 */
import { createHash, randomUUID } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import type { IncomingHttpHeaders } from 'node:http'
import { failureOf } from '../trajectory/failure.ts'
import { openStore, type Store } from '../trajectory/store.ts'
import type { ChatMessage, Failure, FailureKind, Result, ScoredTrajectory } from '../types.ts'
import {
  addCall,
  beginConversation,
  type CapturedCall,
  type Conversation,
  continuationOf,
  trajectoryOf,
} from './conversation.ts'
import { ApiError } from './errors.ts'
import { ownFolder } from './exclusive.ts'
import { Journal, type JournalEntry, type SessionName } from './journal.ts'
import type { ServeOptions } from './options.ts'

/** What one request sees of its session. */
export interface Session {
  continuation(messages: readonly ChatMessage[]): ReturnType<typeof continuationOf>
  /** Written down when it returns. Fails with 500 when that is not possible. */
  record(call: CapturedCall): void
}

/** What `/v1/rewards` answers. */
export interface Closed {
  trajectory_id: string
  calls: number
  segments: number
  sampled_tokens: number
  /** Whether it is stored, or waits for the others of its group. */
  stored: boolean
}

interface OpenSession {
  name: SessionName
  conversation: Conversation
  /** Its file in the journal. */
  file: string
}

interface Group {
  name: string
  size: number
  closed: { session: OpenSession; reward: number | null; correct: boolean }[]
  /** When the last of them was closed, in milliseconds since 1970. */
  heard: number
}

/** Longest names of sessions and groups. */
const NAME_LENGTH = 200
const LARGEST_GROUP = 4096
/** How often silent sessions are looked for, at most. */
const SWEEP_SECONDS = 10

export interface OpenCapture {
  capture: Capture
  /** Stores what is left. What cannot be stored stays in the journal, and the failure says so. */
  close(): Promise<Result<void>>
}

/** The store behind `--capture`, begun or continued; null without that option. */
export async function openCapture(
  options: Pick<ServeOptions, 'capture' | 'sessionSeconds'>,
): Promise<Result<OpenCapture | null>> {
  const { capture: directory, sessionSeconds } = options
  if (directory === null) return { ok: true, value: null }
  try {
    await mkdir(directory, { recursive: true })
    const letGo = await ownFolder(directory)
    if (letGo === null)
      return failed(
        'bad_request',
        `${directory}: another server captures into it; end that one, or name another folder`,
      )
    const opened = await openIn(directory, sessionSeconds, letGo)
    if (!opened.ok) await letGo()
    return opened
  } catch (error) {
    return { ok: false, failure: failureOf(error, `opening the folder ${directory}`) }
  }
}

async function openIn(
  directory: string,
  sessionSeconds: number,
  letGo: () => Promise<void>,
): Promise<Result<OpenCapture>> {
  const opened = await openStore(directory, { resume: true })
  if (!opened.ok) return opened
  const store = opened.value
  try {
    const capture = new Capture(store, new Journal(directory), sessionSeconds)
    await capture.resume()
    const close = async (): Promise<Result<void>> => {
      const lost = await capture.close()
      if (lost === null) return store.close()
      await store.release()
      return failed(
        lost.kind,
        `${lost.message}. What is not stored stays in ${directory}/open-sessions, and the next server goes on from it.`,
      )
    }
    return { ok: true, value: { capture, close: () => close().finally(letGo) } }
  } catch (error) {
    await store.release()
    return { ok: false, failure: failureOf(error, `opening the sessions in ${directory}`) }
  }
}

function failed(kind: FailureKind, message: string): { ok: false; failure: Failure } {
  return { ok: false, failure: { boundary: 'serve', kind, message } }
}

export class Capture {
  private readonly sessions = new Map<string, OpenSession>()
  private readonly groups = new Map<string, Group>()
  /** Names of groups that are being stored. */
  private readonly storing = new Set<string>()
  private readonly sweeping: NodeJS.Timeout
  private lost: Failure | null = null

  constructor(
    private readonly store: Store,
    private readonly journal: Journal,
    private readonly sessionSeconds: number,
  ) {
    const every = Math.min(SWEEP_SECONDS, sessionSeconds / 4) * 1000
    this.sweeping = setInterval(() => void this.sweep().catch((error) => console.error(error)), every).unref()
  }

  /** The session that a request names; null when it names none. Fails when nothing can be stored any more. */
  session(headers: IncomingHttpHeaders): Session | null {
    const name = nameOf(headers)
    if (name === null) return null
    this.checkStorable()
    this.checkGroup(name)
    return {
      continuation: (messages) => continuationOf(this.sessions.get(name.key)?.conversation, messages),
      record: (call) => this.record(name, call),
    }
  }

  /** Closes a session with its reward; null: it has none. Fails with 404 when there is no such session. */
  async reward(id: string, headers: IncomingHttpHeaders, reward: number | null, correct: boolean): Promise<Closed> {
    this.checkStorable()
    const session = this.sessions.get(keyOf(id, headers))
    if (session === undefined)
      throw new ApiError(
        404,
        `There is no open session "${id}" here: nothing was sampled under that X-Session-ID, or it is closed.`,
        { param: 'session_id', code: 'session_not_found' },
      )
    return this.finish(session, reward, correct)
  }

  /** Takes up what an earlier server left in the journal. */
  async resume(): Promise<void> {
    const closed: { session: OpenSession; entry: Extract<JournalEntry, { kind: 'closed' }> }[] = []
    for (const { file, entries } of this.journal.read()) {
      const [begun] = entries
      const stored = entries.some((entry) => entry.kind === 'storing' && this.store.groupIds.has(entry.groupId))
      const hasCalls = entries.some((entry) => entry.kind === 'called')
      if (begun?.kind !== 'begun' || !hasCalls || stored) {
        this.journal.remove(file)
        continue
      }
      const session = { name: begun.name, conversation: beginConversation(begun.at), file }
      for (const entry of entries)
        if (entry.kind === 'called') {
          addCall(session.conversation, entry.call)
          session.conversation.heard = entry.at
        }
      const end = entries.find((entry) => entry.kind === 'closed')
      if (end) closed.push({ session, entry: end })
      else this.sessions.set(begun.name.key, session)
    }
    closed.sort((a, b) => a.entry.sample - b.entry.sample)
    for (const { session, entry } of closed) this.groupOf(session).closed.push({ session, ...entry })
    for (const [key, group] of [...this.groups])
      if (group.closed.length >= group.size) await this.storeGroup(key, group)
  }

  /** How many are open, and how many groups lack some of theirs. */
  get waiting(): { sessions: number; groups: number } {
    return { sessions: this.sessions.size, groups: this.groups.size }
  }

  /** Closes what is open, without rewards, and stores what is left; returns why something could not be stored. Does not close the store. */
  async close(): Promise<Failure | null> {
    clearInterval(this.sweeping)
    // a session whose reward may still come is not closed without one because the disk was full
    if (this.lost !== null) return this.lost
    try {
      for (const session of [...this.sessions.values()]) await this.finish(session, null, false)
      for (const [key, group] of [...this.groups]) await this.storeGroup(key, group)
      this.journal.close()
    } catch (error) {
      if (!(error instanceof ApiError)) throw error
    }
    return this.lost
  }

  /** A session exists from its first recorded call on. */
  private record(name: SessionName, call: CapturedCall): void {
    const at = Date.now()
    const known = this.sessions.get(name.key)
    const session = known ?? { name, conversation: beginConversation(at), file: `${randomUUID()}.jsonl` }
    const begun: JournalEntry[] = known === undefined ? [{ kind: 'begun', name, at }] : []
    this.write(session, ...begun, { kind: 'called', call, at })
    this.sessions.set(name.key, session)
    addCall(session.conversation, call)
    session.conversation.heard = at
  }

  private async finish(session: OpenSession, reward: number | null, correct: boolean): Promise<Closed> {
    const { conversation, name } = session
    const group = this.groupOf(session)
    const sample = group.closed.length
    this.write(session, { kind: 'closed', reward, correct, sample })
    this.sessions.delete(name.key)
    group.closed.push({ session, reward, correct })
    group.heard = Date.now()
    const complete = group.closed.length >= group.size
    const id = complete ? await this.storeGroup(groupKeyOf(session), group) : `0/${group.name}`
    return {
      trajectory_id: `${id}/${sample}`,
      calls: conversation.usage.calls,
      segments: conversation.segments.length,
      sampled_tokens: conversation.usage.completionTokens,
      stored: complete,
    }
  }

  private groupOf(session: OpenSession): Group {
    const { id, group: name, groupSize: size } = session.name
    const key = groupKeyOf(session)
    const group = this.groups.get(key) ?? { name: name ?? id, size, closed: [], heard: Date.now() }
    this.groups.set(key, group)
    return group
  }

  /** Returns the group's id in the store. A name that was used before gets a number. */
  private async storeGroup(key: string, { name, closed }: Group): Promise<string> {
    this.groups.delete(key)
    let qid = name
    for (let n = 2; this.store.groupIds.has(`0/${qid}`) || this.storing.has(qid); n++) qid = `${name}.${n}`
    const id = `0/${qid}`
    this.storing.add(qid)
    try {
      for (const { session } of closed) this.write(session, { kind: 'storing', groupId: id })
      const scored = closed.map(({ session, reward, correct }, sample): ScoredTrajectory => {
        const trajectory = trajectoryOf(session.conversation, qid, reward !== null)
        return {
          trajectory: { ...trajectory, id: `${id}/${sample}`, sample },
          reward: reward === null ? null : { total: reward, format: 0, answer: reward, turnCost: 0 },
          correct,
          grounded: false,
          kind: null,
        }
      })
      const trajectories = scored.map(({ trajectory }) => trajectory)
      const group = { id, step: 0, task: trajectories[0]!.task, trajectories }
      const stored = await this.store.append([{ group, scored }])
      if (!stored.ok) throw this.loseWith(stored.failure)
      for (const { session } of closed) this.journal.remove(session.file)
      return id
    } finally {
      this.storing.delete(qid)
    }
  }

  /** Closes sessions that have been silent for too long, and groups of which no more come. */
  private async sweep(): Promise<void> {
    const before = Date.now() - this.sessionSeconds * 1000
    for (const session of [...this.sessions.values()])
      if (session.conversation.heard < before) await this.finish(session, null, false)
    for (const [key, group] of [...this.groups]) {
      const isExpected = [...this.sessions.values()].some((session) => groupKeyOf(session) === key)
      if (group.heard < before && !isExpected) await this.storeGroup(key, group)
    }
  }

  private write({ file }: OpenSession, ...entries: readonly JournalEntry[]): void {
    try {
      this.journal.append(file, ...entries)
    } catch (error) {
      throw this.loseWith(failureOf(error, 'writing down a captured session'))
    }
  }

  private loseWith(failure: Failure): ApiError {
    this.lost ??= failure
    return new ApiError(500, failure.message, { code: failure.kind })
  }

  /** Fails with 400 when a session names another group than it began with, or a group's members differ in its size. */
  private checkGroup({ key, groupKey, groupSize }: SessionName): void {
    if (groupKey === null) return
    const began = this.sessions.get(key)?.name
    if (began !== undefined && began.groupKey !== groupKey)
      throw badHeader(
        'X-Group-ID',
        `the session began in ${began.group === null ? 'no group' : `the group ${began.group}`}`,
      )
    const members = [...this.sessions.values()].filter(({ name }) => name.groupKey === groupKey)
    const size = this.groups.get(groupKey)?.size ?? members[0]?.name.groupSize ?? groupSize
    if (size !== groupSize) throw badHeader('X-Group-Size', `others of the group say ${size}, got ${groupSize}`)
  }

  private checkStorable(): void {
    if (this.lost === null) return
    throw new ApiError(500, `What is captured can no longer be stored: ${this.lost.message}`, { code: this.lost.kind })
  }
}

function nameOf(headers: IncomingHttpHeaders): SessionName | null {
  const [id, group, size] = ['x-session-id', 'x-group-id', 'x-group-size'].map((name) => header(headers, name))
  if (id == null) {
    if (group != null) throw badHeader('X-Group-ID', 'goes with an X-Session-ID')
    return null
  }
  if (size != null && group == null) throw badHeader('X-Group-Size', 'goes with an X-Group-ID')
  const groupSize = Number(size ?? 1)
  if (!Number.isInteger(groupSize) || groupSize < 1 || groupSize > LARGEST_GROUP)
    throw badHeader('X-Group-Size', `expected a whole number from 1 to ${LARGEST_GROUP}, got ${size}`)
  return {
    key: keyOf(id, headers),
    id,
    group: group ?? null,
    groupKey: group == null ? null : keyOf(group, headers),
    groupSize,
  }
}

/** Sessions and groups may have equal names. */
const groupKeyOf = ({ name, file }: OpenSession) => (name.groupKey === null ? `session ${file}` : name.groupKey)

function keyOf(name: string, { authorization = '' }: IncomingHttpHeaders): string {
  return createHash('sha256').update(`${authorization} ${name}`).digest('hex')
}

function header(headers: IncomingHttpHeaders, name: string): string | null {
  const value = headers[name]
  if (value === undefined || value === '') return null
  if (typeof value !== 'string' || value.length > NAME_LENGTH || !/^[\x21-\x7e]+$/.test(value))
    throw badHeader(name, `expected up to ${NAME_LENGTH} printable characters without spaces`)
  return value
}

function badHeader(name: string, problem: string): ApiError {
  return new ApiError(400, `${name}: ${problem}.`, { param: name, code: 'invalid_value' })
}
