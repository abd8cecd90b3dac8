// Converts raw outputs to predictions: a class with its probability, labels, or numbers in the units of the target.
import { logSum, softmax } from '../../engine/losses.ts'
import { logistic, softplus } from '../../engine/special.ts'
import { significant } from '../../shared/format.ts'
import type { Output } from './modelData.ts'

export interface Choice {
  readonly name: string
  /** A probability, or the raw number for outputs that are not probabilities. */
  readonly value: number
  /** The index of the raw output. */
  readonly output: number
}

export interface Prediction {
  readonly text: string
  readonly choices: readonly Choice[]
  readonly probabilities: boolean
}

const named = (value: unknown): string => String(value)

const mean = (values: readonly number[]): number => values.reduce((sum, v) => sum + v, 0) / values.length
/** log mean eᵛ. */
const logMean = (values: readonly number[]): number => {
  const top = Math.max(...values)
  return Number.isFinite(top) ? top + Math.log(mean(values.map((v) => Math.exp(v - top)))) : top
}

/**
 * Combines the outputs of the members like Python: divides them by the temperature, averages the members' probabilities,
 * exponentials or numbers (depending on the link), and limits the result to the range of the training targets.
 */
export function combineMembers(output: Output, members: readonly ArrayLike<number>[]): number[] {
  const { link } = output
  const temperature = link === 'softmax' || link === 'sigmoid' ? (output.temperature ?? 1) : 1
  const zs = members.map((z) => Array.from(z, (value) => value / temperature))
  const each = (of: (values: number[]) => number): number[] => zs[0].map((_, c) => of(zs.map((z) => z[c])))
  let z: number[]
  if (zs.length === 1) z = zs[0]
  else if (link === 'softmax') {
    const logs = zs.map((one) => one.map((value) => value - logSum(one)))
    z = zs[0].map((_, c) => logMean(logs.map((one) => one[c])))
  } else if (link === 'sigmoid')
    z = each((values) => logMean(values.map((v) => -softplus(-v))) - logMean(values.map((v) => -softplus(v))))
  else z = each(link === 'exp' ? logMean : mean)
  return z.map((value, i) => Math.min(output.high?.[i] ?? Infinity, Math.max(output.low?.[i] ?? -Infinity, value)))
}

/** Formats a target like a prediction. */
export function formatTarget(output: Output, target: unknown): string {
  if (output.classes?.length) return String(target)
  const values: unknown[] = Array.isArray(target) ? target.slice(0, 4) : [target]
  return values.map((value) => (typeof value === 'number' ? significant(value, 5) : String(value))).join(', ')
}

/** Converts raw outputs to a prediction. */
export function predict(output: Output, z: readonly number[]): Prediction {
  const classes = output.classes?.[0]
  if (classes && output.kind !== 'multilabel')
    return z.length > 1 ? ofMany(output, classes, z) : ofTwo(output, classes, z)
  if (output.kind === 'multilabel') {
    const choices = output.names.map((name, i) => ({
      name,
      value: output.link === 'sigmoid' ? logistic(z[i]) : z[i],
      output: i,
    }))
    const yes = choices.filter((c) => c.value > 0.5).map((c) => c.name)
    return { text: yes.join(', ') || 'none', choices, probabilities: true }
  }
  if (output.kind === 'numbers')
    return {
      text: Array.from(z, (v) => significant(v, 5))
        .slice(0, 4)
        .join(', '),
      choices: Array.from(z, (value, i) => ({ name: output.names[i], value, output: i })),
      probabilities: false,
    }
  return ofNumbers(output, z)
}

function ofMany(output: Output, classes: readonly unknown[], z: ArrayLike<number>): Prediction {
  const shares = output.link === 'softmax' ? softmax(z) : Float64Array.from(z)
  const choices = classes.map((name, i) => ({ name: named(name), value: shares[i], output: i }))
  const best = choices.reduce((a, b) => (b.value > a.value ? b : a))
  return { text: best.name, choices, probabilities: output.link === 'softmax' }
}

function ofTwo(output: Output, classes: readonly unknown[], z: ArrayLike<number>): Prediction {
  const share = output.link === 'sigmoid' ? logistic(z[0]) : z[0]
  const yes = z[0] > (output.link ? 0 : 0.5)
  const choices = [
    { name: named(classes[0]), value: 1 - share, output: 0 },
    { name: named(classes[1]), value: share, output: 0 },
  ]
  return { text: named(classes[yes ? 1 : 0]), choices, probabilities: output.link === 'sigmoid' }
}

function ofNumbers(output: Output, z: ArrayLike<number>): Prediction {
  const Q = output.per_target ?? 1
  // Independently learned quantiles may cross, so they are sorted within each target.
  const place = Array.from(z, (_, i) => i)
  if (Q > 1) place.sort((i, j) => Math.floor(i / Q) - Math.floor(j / Q) || z[i] - z[j])
  const choices = place.map((unit, i) => {
    const raw = z[unit]
    const target = Math.floor(i / Q)
    const value =
      (output.link === 'exp' ? Math.exp(raw) : raw) * (output.std?.[target] ?? 1) + (output.mean?.[target] ?? 0)
    const level = Q > 1 ? `, quantile ${output.quantiles?.[i % Q]}` : ''
    return { name: `${output.names[target]}${level}`, value, output: unit }
  })
  return {
    text: choices
      .map((c) => significant(c.value, 5))
      .slice(0, 4)
      .join(', '),
    choices,
    probabilities: false,
  }
}
