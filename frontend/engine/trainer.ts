// Training in the page: batches in a random order in each epoch, dropout on hidden layers, L2, one optimizer.
// A step that would produce a non-finite number is not taken. `failure` then has the step and the layer.
import type { Dataset } from './datasets.ts'
import { backward, clone, forward, computeLoss, emptyTrace, type Network, type Trace } from './network.ts'
import { copyOptimiserState, newOptimiserState, optimiserStep, type OptimiserState, type OptimiserName } from './optimisers.ts'
import { Random } from './random.ts'
import type { LossName } from './losses.ts'

export interface TrainerSettings {
  readonly optimiser: OptimiserName
  readonly rate: number
  /** Rows per step; 0 means all rows. */
  readonly batch: number
  readonly l2: number
  readonly dropout: number
  readonly seed: number
}

/** The first non-finite number: its step, its layer (counted from 1) and its kind. */
export interface Failure {
  readonly step: number
  readonly layer: number
  readonly what: string
}

export class Trainer {
  optimiserState: OptimiserState
  /** Number of steps taken. */
  step = 0
  failure: Failure | null = null
  /** Remaining rows of this epoch. */
  order: number[] = []
  readonly random: Random
  private readonly buffers = new Map<number, Trace>()

  constructor(
    readonly net: Network,
    readonly data: Dataset,
    readonly loss: LossName,
    public settings: TrainerSettings,
  ) {
    this.optimiserState = newOptimiserState(net)
    this.random = new Random(settings.seed + 77)
  }

  /** Takes one step. Returns false if it fails; the state is then unchanged. */
  advance(): boolean {
    if (this.failure) return false
    const { data, net, settings } = this
    const [order, state] = [[...this.order], this.random.state]
    const rows = this.take()
    const whole = rows === null
    const [nIn, nOut] = [net.layers[0].nIn, net.layers[net.layers.length - 1].nOut]
    const x = whole ? data.x : picked(data.x, rows, nIn)
    const y = whole ? data.y : picked(data.y, rows, nOut)
    const t = this.buffer(y.length / nOut)
    const keep = settings.dropout > 0 ? this.masks(t) : undefined
    forward(net, x, t, keep)
    computeLoss(net, y, t, this.loss)
    backward(net, y, t, this.loss, keep)
    if (this.applyGradients(t, settings.optimiser, settings.rate, settings.l2)) return true
    this.order = order
    this.random.state = state
    return false
  }

  /** Takes a step with the gradients of a trace. Returns false, without a change, if a number would not be finite. */
  applyGradients(t: Trace, optimiser: OptimiserName, rate: number, l2 = 0): boolean {
    const { net } = this
    const bad = firstNonFinite(t)
    const before = { net: clone(net), optimiserState: copyOptimiserState(this.optimiserState) }
    if (!bad) optimiserStep(net, t, this.optimiserState, optimiser, rate, l2)
    const wild = bad ?? nonFiniteWeights(net) ?? nonFiniteState(this.optimiserState)
    this.failure = wild && { step: this.step + 1, ...wild }
    if (wild) {
      net.layers.forEach((layer, l) => (layer.W.set(before.net.layers[l].W), layer.b.set(before.net.layers[l].b)))
      this.optimiserState = before.optimiserState
      return false
    }
    this.step++
    return true
  }

  private take(): number[] | null {
    const n = this.data.y.length
    const size = this.settings.batch
    if (!size || size >= n) return null
    if (this.order.length < size) this.order = this.random.order(n)
    return this.order.splice(0, size)
  }

  private buffer(B: number): Trace {
    let found = this.buffers.get(B)
    if (!found) this.buffers.set(B, (found = emptyTrace(this.net, B)))
    return found
  }

  /** Dropout factors: 0 for dropped units, 1/(1 − p) for kept units. The output layer has no dropout. */
  private masks(t: Trace): Float64Array[] {
    const p = this.settings.dropout
    return t.layers.map((layer, l) =>
      layer.a.map(() => (l === t.layers.length - 1 ? 1 : this.random.uniform() < p ? 0 : 1 / (1 - p))),
    )
  }
}

function picked(from: Float64Array, rows: readonly number[], width: number): Float64Array {
  return Float64Array.from(rows.flatMap((r) => Array.from(from.subarray(r * width, (r + 1) * width))))
}

const finite = (values: Float64Array): boolean => values.every(Number.isFinite)

/** The first layer, in the order of the pass, whose numbers are not all finite. */
export function firstNonFinite(t: Trace): { layer: number; what: string } | null {
  for (const [l, layer] of t.layers.entries()) {
    if (!finite(layer.z)) return { layer: l + 1, what: 'z' }
    if (!finite(layer.a)) return { layer: l + 1, what: 'a' }
  }
  if (!Number.isFinite(t.loss)) return { layer: t.layers.length, what: 'the loss' }
  for (let l = t.layers.length - 1; l >= 0; l--) {
    if (!finite(t.layers[l].dW)) return { layer: l + 1, what: 'dW' }
  }
  return null
}

function nonFiniteWeights(net: Network): { layer: number; what: string } | null {
  const l = net.layers.findIndex((layer) => !finite(layer.W) || !finite(layer.b))
  return l < 0 ? null : { layer: l + 1, what: 'a weight' }
}

function nonFiniteState(of: OptimiserState): { layer: number; what: string } | null {
  const l = of.W.findIndex((W, k) => [W, of.b[k]].some((s) => !finite(s.first) || !finite(s.second)))
  return l < 0 ? null : { layer: l + 1, what: 'the optimizer state' }
}

export interface UnitHealth {
  readonly dead: boolean
  readonly saturated: boolean
}

/** A hidden unit is dead if its slope is 0 for every row, and saturated if every slope is below 0.05. */
export function unitHealth(net: Network, t: Trace, slopes: readonly ((z: number) => number)[]): UnitHealth[][] {
  return net.layers.slice(0, -1).map((layer, l) =>
    Array.from({ length: layer.nOut }, (_, o) => {
      let top = 0
      for (let r = 0; r < t.B; r++) top = Math.max(top, Math.abs(slopes[l](t.layers[l].z[r * layer.nOut + o])))
      return { dead: top === 0, saturated: top > 0 && top < 0.05 }
    }),
  )
}
