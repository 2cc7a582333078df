/** `showrunner dataset inspect`: prints what a data set has, lacks and leaks. */
import { inspectDataset } from './dataset/inspect.ts'
import { formatReport } from './dataset/inspectText.ts'
import type { Result } from './types.ts'

export async function inspect(directory: string, json: boolean): Promise<Result<void>> {
  const report = await inspectDataset(directory)
  if (!report.ok) return report
  process.stdout.write(json ? `${JSON.stringify(report.value, null, 2)}\n` : `${formatReport(report.value)}\n`)
  return { ok: true, value: undefined }
}
