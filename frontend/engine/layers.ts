// A factory for each kind of layer: the computation of multilayer.nn.layers in prediction, and the gradient of its inputs.
import { activation, ACTIVATIONS, type Constants } from './activations.ts'
import { gated, logistic, logisticSlope } from './special.ts'
import { normLayer } from './norms.ts'
import { Unsupported, type LayerSpec, type Layer, type Tensors } from './layer.ts'

type Make = (layer: LayerSpec, nIn: number, tensors: Tensors, name: string) => Layer

const MAKERS: Record<string, Make> = {
  linear,
  activation: activationLayer,
  dropout: (_, nIn, __, name) =>
    elementwise(
      name,
      'dropout',
      nIn,
      (x) => x,
      () => 1,
    ),
  scale: (_, nIn, tensors, name) => {
    const s = tensors[`${name}.scale`]
    return elementwise(
      name,
      'scale',
      nIn,
      (x, k) => x * s[k],
      (_, k) => s[k],
    )
  },
  batchnorm: normLayer,
  layernorm: normLayer,
  rmsnorm: normLayer,
  groupnorm: normLayer,
  glu,
  maxout,
}

export function makeLayer(layer: LayerSpec, nIn: number, tensors: Tensors, name: string): Layer {
  const make = MAKERS[layer.kind]
  if (!make) throw new Unsupported(`${name} is a layer of kind ${layer.kind}, which the page cannot compute`)
  return make(layer, nIn, tensors, name)
}

type Unit = (x: number, k: number) => number

function elementwise(name: string, kind: string, n: number, f: Unit, df: Unit): Layer {
  return {
    name,
    kind,
    nIn: n,
    nOut: n,
    elementwise: true,
    forward: (x) => x.map((value, k) => f(value, k % n)),
    backward: (x, _, dy) => dy.map((d, k) => d * df(x[k], k % n)),
  }
}

/** z = s · x Wᵀ + b into a new array. */
export function product(
  x: Float64Array,
  B: number,
  W: Float64Array,
  b: Float64Array | null,
  nIn: number,
  s = 1,
): Float64Array {
  const nOut = W.length / nIn
  const z = new Float64Array(B * nOut)
  for (let r = 0; r < B; r++)
    for (let o = 0; o < nOut; o++) {
      let sum = 0
      for (let i = 0; i < nIn; i++) sum += W[o * nIn + i] * x[r * nIn + i]
      z[r * nOut + o] = s * sum + (b ? b[o] : 0)
    }
  return z
}

/** dx = s · dz W into a new array. */
export function productBack(dz: Float64Array, B: number, W: Float64Array, nIn: number, s = 1): Float64Array {
  const nOut = W.length / nIn
  const dx = new Float64Array(B * nIn)
  for (let r = 0; r < B; r++)
    for (let o = 0; o < nOut; o++) {
      const d = s * dz[r * nOut + o]
      if (d !== 0) for (let i = 0; i < nIn; i++) dx[r * nIn + i] += d * W[o * nIn + i]
    }
  return dx
}

function linear(layer: LayerSpec, nIn: number, tensors: Tensors, name: string): Layer {
  const W = tensors[`${name}.weight`]
  const b = layer.bias ? tensors[`${name}.bias`] : null
  const factor = layer.scale == null ? 1 : layer.scale === 'tangent' ? 1 / Math.sqrt(nIn) : (layer.scale as number)
  return {
    name,
    kind: 'linear',
    nIn,
    nOut: W.length / nIn,
    elementwise: false,
    linear: { W, b, factor },
    forward: (x, B) => product(x, B, W, b, nIn, factor),
    backward: (_, __, dy, B) => productBack(dy, B, W, nIn, factor),
  }
}

/** Learned parameters exist per unit or once per layer. `at` reads both forms. */
const at = (values: Float64Array, k: number): number => values[values.length === 1 ? 0 : k]

function activationLayer(layer: LayerSpec, nIn: number, tensors: Tensors, name: string): Layer {
  const kind = layer.name as string
  if (kind === 'softmax') return softmaxLayer(name, nIn)
  const { f, df } = functionOf(layer, tensors, name)
  if (!layer.blend) return elementwise(name, kind, nIn, f, df)
  const mix = tensors[`${name}.blend`]
  return elementwise(
    name,
    kind,
    nIn,
    (z, k) => z + mix[k] * (f(z, k) - z),
    (z, k) => 1 + mix[k] * (df(z, k) - 1),
  )
}

function functionOf(layer: LayerSpec, tensors: Tensors, name: string): { f: Unit; df: Unit } {
  const kind = layer.name as string
  const constants = layer.constants as Constants
  if (ACTIVATIONS.includes(kind)) return activation(kind, constants)
  if (kind === 'prelu') {
    const alpha = tensors[`${name}.alpha`]
    return { f: (z, k) => (z > 0 ? z : at(alpha, k) * z), df: (z, k) => (z > 0 ? 1 : at(alpha, k)) }
  }
  if (kind === 'learned_swish') {
    const beta = tensors[`${name}.beta`]
    return {
      f: (z, k) => gated(z, logistic(at(beta, k) * z)),
      df: (z, k) => logistic(at(beta, k) * z) + gated(at(beta, k) * z, logisticSlope(at(beta, k) * z)),
    }
  }
  throw new Unsupported(`${name} has the activation ${kind}, which the page cannot compute`)
}

function softmaxLayer(name: string, n: number): Layer {
  const row = (x: Float64Array): Float64Array => {
    const top = x.reduce((a, b) => Math.max(a, b), -Infinity)
    const e = x.map((value) => Math.exp(value - top))
    const sum = e.reduce((a, b) => a + b, 0)
    return e.map((value) => value / sum)
  }
  return {
    name,
    kind: 'softmax',
    nIn: n,
    nOut: n,
    elementwise: false,
    forward: (x, B) => byRow(x, B, n, row),
    backward: (_, y, dy, B) =>
      byRow(dy, B, n, (d, r) => {
        const a = y.subarray(r * n, (r + 1) * n)
        const mean = d.reduce((sum, value, k) => sum + value * a[k], 0)
        return d.map((value, k) => a[k] * (value - mean))
      }),
  }
}

export function byRow(
  x: Float64Array,
  B: number,
  n: number,
  f: (row: Float64Array, r: number) => Float64Array,
): Float64Array {
  const out = new Float64Array(B * n)
  for (let r = 0; r < B; r++) out.set(f(x.subarray(r * n, (r + 1) * n), r), r * n)
  return out
}

const GATES: Record<string, string> = { glu: 'sigmoid', reglu: 'relu', geglu: 'gelu', swiglu: 'silu' }

/** y = f(W₁x + b₁) ⊙ (W₂x + b₂). One matrix contains both projections, first that of the gate. */
function glu(layer: LayerSpec, nIn: number, tensors: Tensors, name: string): Layer {
  const W = tensors[`${name}.weight`]
  const b = layer.bias ? tensors[`${name}.bias`] : null
  const O = layer.d_out as number
  const gate = activation(GATES[layer.variant as string])
  return {
    name,
    kind: layer.variant as string,
    nIn,
    nOut: O,
    elementwise: false,
    forward: (x, B) => {
      const z = product(x, B, W, b, nIn)
      const y = new Float64Array(B * O)
      for (let r = 0; r < B; r++)
        for (let o = 0; o < O; o++) y[r * O + o] = gate.f(z[r * 2 * O + o]) * z[r * 2 * O + O + o]
      return y
    },
    backward: (x, _, dy, B) => {
      const z = product(x, B, W, b, nIn)
      const dz = new Float64Array(z.length)
      for (let r = 0; r < B; r++)
        for (let o = 0; o < O; o++) {
          const [g, v] = [r * 2 * O + o, r * 2 * O + O + o]
          dz[g] = dy[r * O + o] * z[v] * gate.df(z[g])
          dz[v] = dy[r * O + o] * gate.f(z[g])
        }
      return productBack(dz, B, W, nIn)
    },
  }
}

/** y = the largest of k projections. If several are equal, the gradient goes to the first of them. */
function maxout(layer: LayerSpec, nIn: number, tensors: Tensors, name: string): Layer {
  const W = tensors[`${name}.weight`]
  const b = layer.bias ? tensors[`${name}.bias`] : null
  const [O, k] = [layer.d_out as number, layer.k as number]
  const best = (z: Float64Array, start: number): number => {
    let top = start
    for (let j = start + 1; j < start + k; j++) if (z[j] > z[top]) top = j
    return top
  }
  return {
    name,
    kind: 'maxout',
    nIn,
    nOut: O,
    elementwise: false,
    forward: (x, B) => {
      const z = product(x, B, W, b, nIn)
      return Float64Array.from({ length: B * O }, (_, u) => z[best(z, u * k)])
    },
    backward: (x, _, dy, B) => {
      const z = product(x, B, W, b, nIn)
      const dz = new Float64Array(z.length)
      for (let u = 0; u < B * O; u++) dz[best(z, u * k)] = dy[u]
      return productBack(dz, B, W, nIn)
    },
  }
}
