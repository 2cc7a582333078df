/** Questions and episodes from files; the public part and the gold part kept apart. And a small data set of real videos to begin with. */
export { type Dataset, type OpenOptions, openDataset } from './dataset.ts'
export { type DatasetReport, formatReport, inspectDataset, type LeakAudit } from './inspect.ts'
export { type Encode, type MiniatureArguments, type WrittenMiniature, writeMiniature } from './miniature/write.ts'
export { type DatasetOptions, datasetOptions, type MiniatureOptions, miniatureOptions } from './options.ts'
