/** `showrunner dataset import`: raw files meet the importer, and the importer meets the prober of videos. Prints what was dropped and why. */
import { formatImportReport } from './dataset/import/report.ts'
import { importDataset } from './dataset/import/write.ts'
import { type ImportOptions, importOptions } from './dataset/options.ts'
import type { Progress } from './progress.ts'
import type { Result } from './types.ts'
import { videoOptions } from './video/options.ts'
import { probe } from './video/probe.ts'

export interface ImportCommand {
  options: Partial<ImportOptions>
  /** Print the report as JSON. */
  json: boolean
  progress: Progress
  signal: AbortSignal
  print(text: string): void
}

export async function runImport({ options, json, progress, signal, print }: ImportCommand): Promise<Result<void>> {
  const { deadlineSeconds } = videoOptions.parse({})
  const imported = await importDataset({
    ...importOptions.parse(options),
    probe: (path, stop) => probe(path, { deadlineSeconds, signal: stop }),
    progress,
    signal,
  })
  if (!imported.ok) return imported
  progress.done(imported.value.written ? undefined : 'was there already')
  print(json ? JSON.stringify(imported.value.report, null, 2) : formatImportReport(imported.value.report))
  return { ok: true, value: undefined }
}
