// A stack of dense layers. The forward and the backward pass keep every number.
//
//   z = x Wᵀ + b,  a = f(z)              x (B, I), W (O, I), b (O), all row-major
//   dA = ∂L/∂a,  δ = dA ⊙ f′(z),  dW = δᵀ x,  db = Σ_rows δ,  dA of the layer below = δ W
//
// The loss is a mean over rows: δ of the output already holds the only division by B.
import { activation } from './activations.ts'
import { LOSSES, type LossName } from './losses.ts'

export interface Dense {
  readonly nIn: number
  readonly nOut: number
  readonly W: Float64Array
  readonly b: Float64Array
  readonly activation: string
}

export interface Network {
  readonly layers: readonly Dense[]
}

/** A weight: its layer, its unit and the input that it multiplies. If `from` is −1, it is the bias. */
export interface WeightIndex {
  readonly layer: number
  readonly to: number
  readonly from: number
}

export interface UnitIndex {
  readonly layer: number
  readonly unit: number
}

export const sameWeight = (a: WeightIndex | null, b: WeightIndex | null): boolean =>
  a !== null && b !== null && a.layer === b.layer && a.to === b.to && a.from === b.from

/** The numbers of one layer: its input x, z and a; after `backward` also dA, δ, dW and db. */
export interface LayerTrace {
  x: Float64Array
  readonly z: Float64Array
  readonly a: Float64Array
  readonly dA: Float64Array
  readonly delta: Float64Array
  readonly dW: Float64Array
  readonly db: Float64Array
}

export interface Trace {
  readonly B: number
  readonly layers: readonly LayerTrace[]
  /** Loss of each row, and their mean. */
  readonly rowLoss: Float64Array
  loss: number
  /** ∂L/∂x of the inputs. */
  readonly dX: Float64Array
}

export function dense(nIn: number, nOut: number, name: string): Dense {
  return { nIn, nOut, W: new Float64Array(nIn * nOut), b: new Float64Array(nOut), activation: name }
}

/** Layers of the given widths with all weights 0. Hidden layers have the activation `hidden`, the output layer has none. */
export function zeroNetwork(widths: readonly number[], hidden: string): Network {
  return { layers: widths.slice(1).map((n, l) => dense(widths[l], n, l === widths.length - 2 ? 'identity' : hidden)) }
}

export function clone(net: Network): Network {
  return { layers: net.layers.map((layer) => ({ ...layer, W: layer.W.slice(), b: layer.b.slice() })) }
}

/** Empty buffers for a pass of B rows. */
export function emptyTrace(net: Network, B: number): Trace {
  const layers = net.layers.map((layer) => ({
    x: new Float64Array(0),
    z: new Float64Array(B * layer.nOut),
    a: new Float64Array(B * layer.nOut),
    dA: new Float64Array(B * layer.nOut),
    delta: new Float64Array(B * layer.nOut),
    dW: new Float64Array(layer.W.length),
    db: new Float64Array(layer.nOut),
  }))
  return { B, layers, rowLoss: new Float64Array(B), loss: NaN, dX: new Float64Array(B * net.layers[0].nIn) }
}

/** z of one layer: x (B, I) → z (B, O). */
export function affine(layer: Dense, x: Float64Array, z: Float64Array, B: number): void {
  const { nIn, nOut, W, b } = layer
  for (let r = 0; r < B; r++) {
    const from = r * nIn
    const to = r * nOut
    for (let o = 0; o < nOut; o++) {
      let sum = 0
      const row = o * nIn
      for (let i = 0; i < nIn; i++) sum += W[row + i] * x[from + i]
      z[to + o] = sum + b[o]
    }
  }
}

/** Fills z and a of every layer. Returns the outputs (B, C). `keep` scales activations in training (dropout). */
export function forward(net: Network, x: Float64Array, into: Trace, keep?: readonly Float64Array[]): Float64Array {
  let here = x
  net.layers.forEach((layer, l) => {
    const t = into.layers[l]
    const { f } = activation(layer.activation)
    t.x = here
    affine(layer, here, t.z, into.B)
    const mask = keep?.[l]
    for (let k = 0; k < t.z.length; k++) t.a[k] = mask ? f(t.z[k]) * mask[k] : f(t.z[k])
    here = t.a
  })
  return here
}

/** Computes the loss of the outputs of `forward`: of every row, and the mean. */
export function computeLoss(net: Network, y: Float64Array, into: Trace, name: LossName): number {
  const C = net.layers[net.layers.length - 1].nOut
  const out = into.layers[into.layers.length - 1].a
  let sum = 0
  for (let r = 0; r < into.B; r++) sum += into.rowLoss[r] = LOSSES[name].row(out, y, r * C, C)
  return (into.loss = sum / into.B)
}

/** Fills dA, δ, dW and db of every layer, from the last to the first. */
export function backward(
  net: Network,
  y: Float64Array,
  into: Trace,
  name: LossName,
  keep?: readonly Float64Array[],
): void {
  const { B } = into
  const last = net.layers.length - 1
  const C = net.layers[last].nOut
  const top = into.layers[last]
  for (let r = 0; r < B; r++) LOSSES[name].slope(top.a, y, r * C, C, top.dA)
  for (let k = 0; k < top.dA.length; k++) top.dA[k] /= B
  for (let l = last; l >= 0; l--) {
    const layer = net.layers[l]
    const t = into.layers[l]
    const { df } = activation(layer.activation)
    const mask = keep?.[l]
    for (let k = 0; k < t.z.length; k++) t.delta[k] = t.dA[k] * df(t.z[k]) * (mask ? mask[k] : 1)
    gradients(layer, t, B, l ? into.layers[l - 1].dA : into.dX)
  }
}

function gradients(layer: Dense, t: LayerTrace, B: number, dBelow: Float64Array): void {
  const { nIn, nOut, W } = layer
  t.dW.fill(0)
  t.db.fill(0)
  dBelow.fill(0)
  for (let r = 0; r < B; r++) {
    for (let o = 0; o < nOut; o++) {
      const d = t.delta[r * nOut + o]
      const row = o * nIn
      t.db[o] += d
      for (let i = 0; i < nIn; i++) {
        t.dW[row + i] += d * t.x[r * nIn + i]
        dBelow[r * nIn + i] += d * W[row + i]
      }
    }
  }
}

/** One forward and backward pass in new buffers. */
export function forwardBackward(net: Network, x: Float64Array, y: Float64Array, name: LossName): Trace {
  const into = emptyTrace(net, x.length / net.layers[0].nIn)
  forward(net, x, into)
  computeLoss(net, y, into, name)
  backward(net, y, into, name)
  return into
}
