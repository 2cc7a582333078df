/**
 * `npm run bench -- coverage [draws]`: how often the report's 95 % intervals hold the truth, over simulated comparisons (default 1,000).
 *
 * Episodes differ in difficulty and so do questions; two masters answer the same ones. Prints a JSON line per kind of number and size
 * of data set; 93 to 97 % is what is expected. Reads nothing and trains nothing.
 */
import { coverage, scenarios } from '../test/report/simulation.ts'

const draws = Number(process.argv[2] ?? 1000)
for (const scenario of scenarios) {
  const covered = coverage(scenario, draws)
  const { kind, episodes, questions } = scenario
  console.log(JSON.stringify({ kind, episodes, questionsPerEpisode: questions, draws, ...covered }))
}
