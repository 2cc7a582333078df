/** Questions and episodes from files; the public part and the gold part kept apart. And a small data set of real videos to begin with. */
export { type FrameBoxes, openBoxes } from './boxes.ts'
export type { Dataset, OpenOptions } from './dataset.ts'
export { formatImportReport, type ImportReport } from './import/report.ts'
export { type ImportArguments, type Imported, importDataset } from './import/write.ts'
export { type DatasetReport, inspectDataset, type LeakAudit } from './inspect.ts'
export { formatReport } from './inspectText.ts'
export { type Encode, type MiniatureArguments, type WrittenMiniature, writeMiniature } from './miniature/write.ts'
export { openDataset } from './open.ts'
export { withShuffledOptions } from './optionOrder.ts'
export {
  type DatasetOptions,
  datasetOptions,
  type ImportOptions,
  importOptions,
  type MiniatureOptions,
  miniatureOptions,
} from './options.ts'
