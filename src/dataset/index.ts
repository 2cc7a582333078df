/** Questions and episodes from files; the public part and the gold part kept apart. */
export { type Dataset, openDataset, type OpenOptions } from './dataset.ts'
export { type DatasetOptions, datasetOptions } from './options.ts'
