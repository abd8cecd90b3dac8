// Formats the numbers of a report.
import { fixed, groupDigits, percent, significant, withMinusSign } from '../shared/format.ts'
import type { Cell, Metric, MaybeNumber } from './types.ts'

export const METRIC_NAMES: Record<string, string> = {
  accuracy: 'accuracy',
  balanced_accuracy: 'balanced accuracy',
  log_loss: 'log loss',
  auc: 'area under ROC',
  average_precision: 'average precision',
  f1: 'F1',
  rmse: 'root mean squared error',
  mae: 'mean absolute error',
  r2: 'R²',
}

export const METRIC_DESCRIPTIONS: Record<string, string> = {
  accuracy: 'share of correct predictions',
  balanced_accuracy: 'recall of each class, averaged over classes',
  log_loss: 'mean of −log(probability of the true class); 0 is perfect',
  auc: 'probability that a row of the class has a higher score than a row of another class',
  average_precision: 'precision at each positive row as the threshold, averaged over positive rows',
  f1: 'harmonic mean of precision and recall',
  rmse: 'square root of the mean squared error, in units of the target',
  mae: 'mean absolute error, in units of the target',
  r2: 'share of the variance that is explained; 0 is as good as predicting the mean',
}

const SHARES = new Set(['accuracy', 'balanced_accuracy'])

export const metricName = (name: string): string => METRIC_NAMES[name] ?? name.replaceAll('_', ' ')

/** The label of a tick: 120000 is 120k, 0.00001 is 10⁻⁵. */
export function formatTick(value: number): string {
  const size = Math.abs(value)
  if (size >= 1e9) return `${significant(value / 1e9, 4)}G`
  if (size >= 1e6) return `${significant(value / 1e6, 4)}M`
  return size >= 1e4 ? `${significant(value / 1e3, 4)}k` : significant(value, 4).replace(/(?<=\d)\.?0+(?=·)/, '').replace(/^1·/, '')
}

/** The name of a metric at the beginning of a title. */
export const metricTitle = (name: string): string => metricName(name).replace(/^./, (c) => c.toUpperCase())

/** 22970 → "22,970". */
const separateThousands = (text: string): string => (/^−?\d{5,}$/.test(text) ? text.replace(/\B(?=(\d{3})+$)/g, ',') : text)

export function formatMetric(name: string, value: MaybeNumber, digits = 4): string {
  if (value === null) return '–'
  return SHARES.has(name) ? percent(value) : separateThousands(significant(value, digits))
}

export const formatPercent = (share: MaybeNumber, decimals = 1): string => (share === null ? '–' : percent(share, decimals))

/** A share as a percentage, rounded to at most one decimal. */
export const formatShare = (value: number): string =>
  value === 0 ? '0 %' : value < 0.001 ? '< 0.1 %' : `${fixed(100 * value, value < 0.1 ? 1 : 0)} %`

export function formatInterval(metric: Metric): string {
  if (metric.low === null || metric.high === null) return ''
  return `${formatMetric(metric.name, metric.low)} to ${formatMetric(metric.name, metric.high)}`
}

/** Whole numbers with all digits, others with `digits` significant digits; large numbers with separators of thousands. */
function number(value: number, digits: number): string {
  const size = Math.abs(value)
  // No separator below 10,000, so that years remain years.
  if (Number.isInteger(value)) return size < 1e4 ? withMinusSign(String(value)) : size < 1e15 ? groupDigits(value) : significant(value, digits)
  if (size < 1e4 || size >= 1e6) return significant(value, digits)
  return withMinusSign(Number(value.toPrecision(Math.max(digits, 5))).toLocaleString('en-US'))
}

export function formatCell(value: Cell | undefined, digits = 6): string {
  if (value === null || value === undefined) return '–'
  if (typeof value === 'number') return number(value, digits)
  return typeof value === 'boolean' ? (value ? 'true' : 'false') : value
}

export function formatSeconds(value: MaybeNumber): string {
  if (value === null) return '–'
  const steps: [number, string][] = [
    [1e-6, 'ns'],
    [1e-3, 'µs'],
    [1, 'ms'],
    [60, 's'],
  ]
  const scale: Record<string, number> = { ns: 1e-9, µs: 1e-6, ms: 1e-3, s: 1 }
  for (const [below, unit] of steps) if (value < below) return `${significant(value / scale[unit], 3)} ${unit}`
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`
  return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`
}

function scaled(value: number, base: number, units: string[], unit: string): string {
  let place = 0
  while (value >= base && place < units.length - 1) {
    value /= base
    place += 1
  }
  return `${significant(value, 3)} ${units[place]}${unit}`
}

export const formatFlops = (value: number): string => scaled(value, 1000, ['', 'k', 'M', 'G', 'T', 'P'], 'FLOP')
export const formatBytes = (value: number): string => scaled(value, 1024, ['', 'Ki', 'Mi', 'Gi', 'Ti'], 'B')
export const formatCount = (n: number, word: string): string => `${groupDigits(n)} ${word}${n === 1 ? '' : 's'}`
