// How figures of a report are written.
import { fixed, grouped, significant, typeset } from '../shared/format.ts'
import type { Cell, Metric, Num } from './types.ts'

export const NAMES: Record<string, string> = {
  accuracy: 'accuracy',
  balanced_accuracy: 'balanced accuracy',
  log_loss: 'log loss',
  auc: 'area under ROC',
  f1: 'F1',
  rmse: 'root mean squared error',
  mae: 'mean absolute error',
  r2: 'R²',
}

export const EXPLAINED: Record<string, string> = {
  accuracy: 'share of answers that are right',
  balanced_accuracy: 'share of each class that is found, averaged over classes',
  log_loss: 'how surprised the model is by the truth; 0 is never',
  auc: 'chance that a row of the class scores above one that is not',
  f1: 'balance of finding all and naming only right ones',
  rmse: 'typical error, large ones weighed more, in units of the target',
  mae: 'typical error in units of the target',
  r2: 'share of the variance explained; 0 is no better than the mean',
}

const SHARES = new Set(['accuracy', 'balanced_accuracy'])

export const named = (name: string): string => NAMES[name] ?? name.replaceAll('_', ' ')

/** For the axis of a figure: 120000 is 120k, 0.00001 is 10⁻⁵. */
export function tick(value: number): string {
  const size = Math.abs(value)
  if (size >= 1e9) return `${significant(value / 1e9, 4)}G`
  if (size >= 1e6) return `${significant(value / 1e6, 4)}M`
  return size >= 1e4 ? `${significant(value / 1e3, 4)}k` : significant(value, 4).replace(/(?<=\d)\.?0+(?=·)/, '').replace(/^1·/, '')
}

/** At the beginning of a title. */
export const titled = (name: string): string => named(name).replace(/^./, (c) => c.toUpperCase())

/** 22970 → "22,970". */
const apart = (text: string): string => (/^−?\d{5,}$/.test(text) ? text.replace(/\B(?=(\d{3})+$)/g, ',') : text)

export function figure(name: string, value: Num, digits = 4): string {
  if (value === null) return '–'
  return SHARES.has(name) ? `${fixed(100 * value, 1)} %` : apart(significant(value, digits))
}

export const percent = (share: Num, decimals = 1): string => (share === null ? '–' : `${fixed(100 * share, decimals)} %`)

/** Without a sign and with as many decimals as 0 to 100 needs. */
export const share = (value: number): string =>
  value === 0 ? '0 %' : value < 0.001 ? '< 0.1 %' : `${fixed(100 * value, value < 0.1 ? 1 : 0)} %`

export function interval(metric: Metric): string {
  if (metric.low === null || metric.high === null) return ''
  return `${figure(metric.name, metric.low)} to ${figure(metric.name, metric.high)}`
}

/** Whole numbers with all their digits, others with so many; thousands apart where that helps. */
function number(value: number, digits: number): string {
  const size = Math.abs(value)
  // Years and the like are not thousands.
  if (Number.isInteger(value)) return size < 1e4 ? typeset(String(value)) : size < 1e15 ? grouped(value) : significant(value, digits)
  if (size < 1e4 || size >= 1e6) return significant(value, digits)
  return typeset(Number(value.toPrecision(Math.max(digits, 5))).toLocaleString('en-US'))
}

export function cell(value: Cell | undefined, digits = 6): string {
  if (value === null || value === undefined) return '–'
  if (typeof value === 'number') return number(value, digits)
  return typeof value === 'boolean' ? (value ? 'true' : 'false') : value
}

export function seconds(value: Num): string {
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

export const flops = (value: number): string => scaled(value, 1000, ['', 'k', 'M', 'G', 'T', 'P'], 'FLOP')
export const size = (value: number): string => scaled(value, 1024, ['', 'Ki', 'Mi', 'Gi', 'Ti'], 'B')
export const count = (n: number, word: string): string => `${grouped(n)} ${word}${n === 1 ? '' : 's'}`
