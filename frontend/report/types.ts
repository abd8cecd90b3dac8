// The data of a report, as `multilayer.pages.report.report` returns it. Missing values are null.
import type { Finding } from '../shared/finding.ts'

export type MaybeNumber = number | null

export interface Sentence {
  tone: 'good' | 'fair' | 'bad'
  text: string
}

export interface Epoch {
  epoch: number
  step: number
  loss: MaybeNumber
  validation: MaybeNumber
  metrics: Record<string, MaybeNumber>
}

export interface Step {
  step: number
  loss: MaybeNumber
  rate: MaybeNumber
}

export interface TrainingEvent {
  kind: string
  step: number
  text: string
}

export interface Curves {
  steps_per_epoch: MaybeNumber
  epochs: Epoch[]
  steps: Step[]
  /** Step and norm of the gradient. */
  norms: [number, MaybeNumber][]
  /** Step and learning rate. */
  rates: [number, number][]
  marks: TrainingEvent[]
}

export interface Metric {
  name: string
  value: MaybeNumber
  low: MaybeNumber
  high: MaybeNumber
  how: string
  better: 'higher' | 'lower'
  train: MaybeNumber
  baseline: MaybeNumber
}

export interface Confusion {
  labels: string[] | null
  counts: number[][] | null
  classes: number
  pairs: { truth: string; predicted: string; rows: number }[]
}

export interface Curve {
  label: string
  rows: number
  auc: number
  ap: number
  roc: [number, number][]
  pr: [number, number][]
}

export interface Bin {
  from: number
  to: number
  rows: number
  given: number
  came: number
  low: number
  high: number
}

export interface Calibration {
  of: string
  bins: Bin[]
  ece: number
  chance: number
  lean: number
}

export interface Histogram {
  low: number
  high: number
  counts: number[]
}

export interface Residual {
  target: string
  points: [MaybeNumber, MaybeNumber][]
  rows: number
  histogram: Histogram | null
  bias: MaybeNumber
}

export interface Coverage {
  target: string
  level: number
  share: number
  low: number
  high: number
}

export interface Importance {
  metric: string
  better: 'higher' | 'lower'
  base: MaybeNumber
  rounds: number
  rows: number
  image: number[] | null
  patch: number
  /** Number of columns of the data. If there are many, importance is computed for those that vary most. */
  of: number
  columns: { name: string; mean: MaybeNumber; sd: MaybeNumber }[]
}

export type Cell = string | number | boolean | null

export interface WorstRow {
  row: number
  loss: MaybeNumber
  truth: string
  predicted: string
  sure?: MaybeNumber
  of_truth?: MaybeNumber
  error?: MaybeNumber
  values: Cell[]
  pixels?: number[]
}

export interface Worst {
  columns: string[]
  rows: WorstRow[]
  image: number[] | null
}

export interface Column {
  name: string
  family: string
  kind: string
  missing: number
  distinct: number
  range?: [Cell, Cell, Cell]
  histogram?: Histogram | null
  frequent?: [Cell, number][]
}

export interface Data {
  rows: number
  columns: number
  shown: Column[]
  targets: Column[]
  image: number[] | null
  mean_image: number[] | null
}

export interface Evaluation {
  rows: number
  origin: 'held out' | 'trained on' | 'given'
  in_turn: boolean
  task: string
  classifies: boolean
  targets: string[]
  metric: string
  metrics: Metric[]
  confusion: Confusion | null
  labels: { label: string; hits: number; misses: number; false_alarms: number; rejections: number }[] | null
  curves: { of: number; curves: Curve[] } | null
  calibration: Calibration | null
  residuals: Residual[] | null
  coverage: Coverage[] | null
  importance: Importance | null
  /** Accuracy or R² and skill of the model (`network`) and of simple methods; absent in older reports. */
  references?: {
    metric: 'accuracy' | 'r2'
    scores: Record<string, number>
    skills: Record<string, number>
    error: number
    rows: number
    train_rows: number
  } | null
  worst: Worst
  data: Data | null
  notes: string[]
}

export interface LayerSummary {
  name: string
  last: string
  kind: string
  detail: string
  activation: string | null
  d_in: number
  d_out: number
  times: number
  parameters: number
  flops: number
  share: number
  layers?: LayerSummary[]
}

export interface Network {
  network: string
  parameters: number
  inputs: { numeric: number; categories: number[] }
  outputs: number
  layers: LayerSummary[]
}

export interface Cost {
  batch: number
  parameters: number
  layers: { name: string; what: string; parameters: number; forward: number; backward: number }[]
  step: number
  epoch: MaybeNumber
  row: number
  memory: number
  file: number
}

export interface Report {
  name: string
  run: {
    status: string
    reason: string
    epochs: number
    steps: number
    seconds: MaybeNumber
    step_seconds: MaybeNumber
    rows_per_second: MaybeNumber
    engine: string
    seed: MaybeNumber
    rows: MaybeNumber
    versions: Record<string, string>
  }
  verdict: { sentences: Sentence[]; tries: { text: string; command: string }[] }
  findings: Finding[]
  curves: Curves
  evaluation: Evaluation | null
  network: Network
  members: number
  cost: Cost
  predicted: { step: number; rows: Record<string, number>; processor: string; threads: MaybeNumber } | null
  config: Record<string, unknown>
  effective: Record<string, unknown>
  again: { command: string | null; python: string; notes: string[] }
}

export interface State {
  kind: 'report'
  version: number
  live: boolean
  runs: Report[]
}
