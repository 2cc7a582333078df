/** What `/metrics` tells Prometheus. Counters of one server; nothing in them is a prompt or an answer. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { FairQueue } from './queue.ts'

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300]

export interface Metrics {
  registry: Registry
  requests: Counter<'route' | 'status'>
  /** `kind`: prompt or sampled. */
  tokens: Counter<'kind'>
  firstToken: Histogram<'route'>
  duration: Histogram<'route'>
  /** Requests whose client went away. */
  left: Counter
  refused: Counter
  swaps: Counter
  /** Calls recorded in trajectories, and those that could not be: `outcome`. */
  captured: Counter<'outcome'>
}

export function createMetrics(queue: FairQueue): Metrics {
  const registry = new Registry()
  const registers = [registry]
  new Gauge({
    name: 'showrunner_sequences_running',
    help: 'Sequences that are being sampled.',
    registers,
    collect() {
      this.set(queue.running)
    },
  })
  new Gauge({
    name: 'showrunner_sequences_waiting',
    help: 'Sequences that wait for a place.',
    registers,
    collect() {
      this.set(queue.waiting)
    },
  })
  return {
    registry,
    requests: new Counter({
      name: 'showrunner_requests_total',
      help: 'Requests answered, by route and status; 499: the client went away.',
      labelNames: ['route', 'status'],
      registers,
    }),
    tokens: new Counter({
      name: 'showrunner_tokens_total',
      help: 'Tokens read in prompts (each prompt once) and sampled.',
      labelNames: ['kind'],
      registers,
    }),
    firstToken: new Histogram({
      name: 'showrunner_time_to_first_token_seconds',
      help: 'From the request to its first sampled token.',
      labelNames: ['route'],
      buckets: SECONDS,
      registers,
    }),
    duration: new Histogram({
      name: 'showrunner_request_seconds',
      help: 'From the request to the end of its answer.',
      labelNames: ['route'],
      buckets: SECONDS,
      registers,
    }),
    left: new Counter({
      name: 'showrunner_clients_left_total',
      help: 'Requests whose client went away before the answer was there.',
      registers,
    }),
    refused: new Counter({
      name: 'showrunner_requests_refused_total',
      help: 'Requests refused with 429 because too many sequences waited.',
      registers,
    }),
    swaps: new Counter({
      name: 'showrunner_weight_swaps_total',
      help: 'Versions that took the place of another behind an alias.',
      registers,
    }),
    captured: new Counter({
      name: 'showrunner_captured_calls_total',
      help: 'Calls of sessions that were recorded in a trajectory, or refused because ids or log-probabilities were missing.',
      labelNames: ['outcome'],
      registers,
    }),
  }
}
