// Snapshots of the playground for undo, links and files: everything needed to restore it exactly, and no derived values.
import { OFFERED } from '../engine/activations.ts'
import { DATASETS } from '../engine/datasets.ts'
import { SCHEMES, type Scheme } from '../engine/initialisation.ts'
import { LOSSES, type LossName } from '../engine/losses.ts'
import { zeroNetwork, type Network } from '../engine/network.ts'
import { OPTIMISERS, type OptimiserState, type OptimiserName, type Slots } from '../engine/optimisers.ts'
import type { TrainerSettings, Trainer } from '../engine/trainer.ts'

/** Version 1 had no `training` and no display options except the tab; version 2 had no `course`. */
export const VERSION = 3
export const MAX_WIDTH = 8
export const MAX_HIDDEN = 6
export const MAX_RATE = 1e6
/** Points of the loss curve in a snapshot, and their digits. They limit the length of a link. */
const POINTS = 120
const DIGITS = 5

export interface TrainingSettings extends TrainerSettings {
  readonly scheme: Scheme
}

export const DEFAULT_TRAINING: TrainingSettings = {
  scheme: 'xavier',
  optimiser: 'adam',
  rate: 0.05,
  batch: 0,
  l2: 0,
  dropout: 0,
  seed: 1,
}

export interface Snapshot {
  readonly version: typeof VERSION
  readonly data: string
  readonly loss: LossName
  readonly activation: string
  readonly widths: readonly number[]
  /** W (row by row), then b of each layer. */
  readonly weights: readonly number[]
  readonly training: TrainingSettings
  /** Null before the first step. */
  readonly course: TrainingState | null
}

export type LossPoint = readonly [step: number, loss: number]

/** The state of training: everything needed to continue exactly, and the loss so far. */
export interface TrainingState {
  readonly step: number
  /** State of the random number generator. */
  readonly random: number
  /** Remaining rows of this epoch. */
  readonly order: readonly number[]
  readonly optimiser: OptimiserName
  /** The optimizer's number of steps, and its two slots for each weight, in the order of the weights. */
  readonly steps: number
  readonly first: readonly number[]
  readonly second: readonly number[]
  readonly curve: readonly LossPoint[]
}

export function trainingStateOf({ optimiserState, step, random, order }: Trainer, curve: readonly LossPoint[]): TrainingState | null {
  if (optimiserState.of === null) return null
  const slot = (name: keyof Slots): number[] => parts(optimiserState, name).flatMap((part) => [...part])
  return {
    step,
    random: random.state,
    order: [...order],
    optimiser: optimiserState.of,
    steps: optimiserState.step,
    first: slot('first'),
    second: slot('second'),
    curve: fewer(curve.filter(([, loss]) => Number.isFinite(loss))),
  }
}

/** Reduces a curve to at most POINTS points, including the first and the last. A reduced curve does not change again. */
function fewer(curve: readonly LossPoint[]): LossPoint[] {
  const every = curve.length <= POINTS ? 1 : Math.ceil(curve.length / (POINTS - 1))
  return curve
    .filter((_, k) => k % every === 0 || k === curve.length - 1)
    .map(([at, loss]) => [at, Number(loss.toPrecision(DIGITS))])
}

/** Sets a trainer to a saved state. */
export function restoreTraining(trainer: Trainer, from: TrainingState): void {
  const { optimiserState } = trainer
  for (const name of ['first', 'second'] as const) pour(parts(optimiserState, name), from[name])
  optimiserState.of = from.optimiser
  optimiserState.step = from.steps
  trainer.step = from.step
  trainer.order = [...from.order]
  trainer.random.state = from.random
}

const parts = (optimiserState: OptimiserState, name: keyof Slots): Float64Array[] =>
  optimiserState.W.flatMap((W, l) => [W[name], optimiserState.b[l][name]])

/** Fills the arrays in order with the values. */
function pour(into: readonly Float64Array[], values: readonly number[]): void {
  let at = 0
  for (const part of into) {
    part.set(values.slice(at, at + part.length))
    at += part.length
  }
}

export function takeSnapshot(net: Network, of: Omit<Snapshot, 'version' | 'widths' | 'weights'>): Snapshot {
  const weights = net.layers.flatMap((layer) => [...layer.W, ...layer.b])
  const widths = [net.layers[0].nIn, ...net.layers.map((layer) => layer.nOut)]
  return { version: VERSION, ...of, widths, weights }
}

export function restoreNetwork(from: Snapshot): Network {
  const net = zeroNetwork(from.widths, from.activation)
  pour(
    net.layers.flatMap((layer) => [layer.W, layer.b]),
    from.weights,
  )
  return net
}

/** Checks a snapshot from an untrusted source. An error names the first invalid part. */
export function checkSnapshot(value: unknown): Snapshot {
  if (typeof value !== 'object' || value === null) throw new Error('it contains no state of this page')
  const { version, data, loss, activation, widths, weights } = value as Record<string, unknown>
  if (typeof version === 'number' && version > VERSION)
    throw new Error(`it has version ${version}, but this page reads at most version ${VERSION}: open it in a newer page`)
  if (version !== VERSION && version !== 1 && version !== 2) throw new Error('this page does not know its version')
  if (typeof data !== 'string' || !Object.hasOwn(DATASETS, data)) throw new Error('this page does not have its data set')
  if (typeof loss !== 'string' || !Object.hasOwn(LOSSES, loss))
    throw new Error('this page does not have its loss')
  if (typeof activation !== 'string' || !Object.hasOwn(OFFERED, activation))
    throw new Error('this page does not have its activation')
  const nIn = DATASETS[data]().features.length
  if (!Array.isArray(widths) || widths.length < 2 || widths.length > MAX_HIDDEN + 2)
    throw new Error(`its network must have at most ${MAX_HIDDEN} hidden layers`)
  if (widths[0] !== nIn || widths[widths.length - 1] !== 1)
    throw new Error(`its network must have ${nIn} inputs and 1 output`)
  if (!widths.every((n) => Number.isInteger(n) && n >= 1 && n <= MAX_WIDTH))
    throw new Error(`its layers must have 1 to ${MAX_WIDTH} units`)
  const count = widths.slice(1).reduce((sum: number, n: number, l: number) => sum + n * (widths[l] as number) + n, 0)
  if (!Array.isArray(weights) || weights.length !== count) throw new Error(`it must have ${count} weights`)
  if (!weights.every((w) => typeof w === 'number' && Number.isFinite(w)))
    throw new Error('its weights must be finite numbers')
  const training = version === 1 ? DEFAULT_TRAINING : checkTrainingSettings((value as Snapshot).training)
  const course = version < VERSION ? null : checkTrainingState((value as Snapshot).course, count, DATASETS[data]().y.length)
  return {
    version: VERSION,
    data,
    loss: loss as LossName,
    activation,
    widths: [...widths],
    weights: [...weights],
    training,
    course,
  }
}

function checkTrainingSettings(value: unknown): TrainingSettings {
  const found = (value ?? {}) as Record<string, unknown>
  const number = (name: string, top: number, whole = false): number => {
    const given = found[name]
    if (typeof given !== 'number' || !(given >= 0 && given <= top) || (whole && !Number.isInteger(given)))
      throw new Error(`its ${name} must be from 0 to ${top}`)
    return given
  }
  if (typeof found.scheme !== 'string' || !Object.hasOwn(SCHEMES, found.scheme))
    throw new Error('this page does not have its initialization')
  if (typeof found.optimiser !== 'string' || !Object.hasOwn(OPTIMISERS, found.optimiser))
    throw new Error('this page does not have its optimiser')
  return {
    scheme: found.scheme as Scheme,
    optimiser: found.optimiser as OptimiserName,
    rate: number('rate', MAX_RATE),
    batch: number('batch', 1000, true),
    l2: number('l2', MAX_RATE),
    dropout: number('dropout', 0.9),
    seed: number('seed', 1e9, true),
  }
}

function checkTrainingState(value: unknown, weights: number, rows: number): TrainingState | null {
  if (value === null) return null
  const found = (value ?? {}) as Record<string, unknown>
  const list = (of: unknown, most: number, good: (one: unknown) => boolean): boolean =>
    Array.isArray(of) && of.length <= most && of.every(good)
  const finite = (one: unknown): boolean => typeof one === 'number' && Number.isFinite(one)
  const whole = (below: number) => (one: unknown) => Number.isInteger(one) && (one as number) >= 0 && (one as number) < below
  const full = (of: unknown): boolean => list(of, weights, finite) && (of as unknown[]).length === weights
  const checks: Readonly<Record<keyof TrainingState, (one: unknown) => boolean>> = {
    step: whole(1e12),
    random: whole(2 ** 32),
    order: (one) => list(one, rows, whole(rows)),
    optimiser: (one) => typeof one === 'string' && Object.hasOwn(OPTIMISERS, one),
    steps: whole(1e12),
    first: full,
    second: (one) => full(one) && (one as number[]).every((v) => v >= 0),
    curve: (one) => list(one, POINTS, (p) => list(p, 2, finite) && (p as unknown[]).length === 2),
  }
  const names = Object.keys(checks) as (keyof TrainingState)[]
  for (const name of names) if (!checks[name](found[name])) throw new Error(`its training state has an invalid ${name}`)
  return Object.fromEntries(names.map((name) => [name, found[name]])) as unknown as TrainingState
}

/** The part of an address after #: a snapshot, and other values to restore. */
export function toHash(of: Snapshot, more: object): string {
  const { version, ...rest } = of
  return `#v${version}=${encodeURIComponent(JSON.stringify({ ...rest, ...more }))}`
}

/** The snapshot in an address, and its other values unchecked; null if the address has none. */
export function fromHash(hash: string): { snapshot: Snapshot; more: Record<string, unknown> } | null {
  const match = /^#v(\d{1,6})=(.*)$/s.exec(hash)
  if (!match) return null
  let value: Record<string, unknown>
  try {
    value = JSON.parse(decodeURIComponent(match[2])) as Record<string, unknown>
  } catch {
    throw new Error('it is incomplete or damaged')
  }
  return { snapshot: checkSnapshot({ ...value, version: Number(match[1]) }), more: { ...value } }
}
