/**
 * Rows as the files have them, before qids that repeat are read once: for counts per file and for what splits share. Imported and raw data
 * sets alike. Knows which clip each row is about, so it belongs to the gold part; nothing of it may reach a task.
 */
import { basename, relative } from 'node:path'
import type { Result } from '../types.ts'
import { type DatasetMarker, type GoldLine, paths, type QuestionLine } from './layout.ts'
import { readLines } from './lines.ts'
import { findQuestionFiles, readRows } from './rows.ts'

export interface SurveyedRow {
  split: string
  qid: string
  episodeId: string
  clipId: string | null
  text: string
}

export interface Survey {
  files: { file: string; split: string; rows: number }[]
  rows: SurveyedRow[]
}

/** `marker`: of an imported data set; null for raw files. Fails as `openDataset` does. */
export async function surveyRows(directory: string, marker: DatasetMarker | null): Promise<Result<Survey>> {
  return marker ? surveyImported(directory, marker) : surveyRaw(directory)
}

async function surveyRaw(directory: string): Promise<Result<Survey>> {
  const found = await findQuestionFiles(directory)
  if (!found.ok) return found
  const survey: Survey = { files: [], rows: [] }
  for (const file of found.value) {
    const read = await readRows(file)
    if (!read.ok) return read
    survey.files.push({ file: basename(file.path), split: file.split, rows: read.value.length })
    for (const { split, qid, episodeId, clip, fields } of read.value)
      survey.rows.push({ split, qid, episodeId, clipId: clip?.id ?? null, text: String(fields.q) })
  }
  return { ok: true, value: survey }
}

async function surveyImported(directory: string, marker: DatasetMarker): Promise<Result<Survey>> {
  const to = paths(directory)
  const survey: Survey = { files: [], rows: [] }
  for (const [split, { questions }] of Object.entries(marker.splits)) {
    survey.files.push({ file: relative(directory, to.questions(split)), split, rows: questions })
    let next = survey.rows.length
    for await (const line of readLines<QuestionLine>(to.questions(split))) {
      if (!line.ok) return line
      const { qid, episode, q } = line.value
      survey.rows.push({ split, qid, episodeId: episode, clipId: null, text: q })
    }
    for await (const line of readLines<GoldLine>(to.gold(split))) {
      if (!line.ok) return line
      // line n of the gold belongs to question n
      const row = survey.rows[next++]
      if (row) row.clipId = line.value.clip
    }
  }
  return { ok: true, value: survey }
}
