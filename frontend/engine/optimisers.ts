// The optimizers of multilayer.nn.optimizers, with the same order of operations as PyTorch.
//
//   sgd        p ← p − η g
//   momentum   v ← μ v + g,  p ← p − η v
//   adam       m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²,  p ← p − η m̂ / (√v̂ + ε)
//
// L2 adds λ p to the gradient of weights, not of biases.
import type { Network, Trace } from './network.ts'

export const OPTIMISERS = { sgd: 'SGD', momentum: 'momentum', adam: 'Adam' } as const

export type OptimiserName = keyof typeof OPTIMISERS

export const MOMENTUM = 0.9
export const BETA1 = 0.9
export const BETA2 = 0.999
export const EPSILON = 1e-8

export interface Slots {
  readonly first: Float64Array
  readonly second: Float64Array
}

/** The state of an optimizer: two slots for W and b of every layer, and the number of steps. */
export interface OptimiserState {
  /** The optimizer of this state. Another optimizer starts with an empty state. */
  of: OptimiserName | null
  step: number
  readonly W: readonly Slots[]
  readonly b: readonly Slots[]
}

const slots = (n: number): Slots => ({ first: new Float64Array(n), second: new Float64Array(n) })

export function newOptimiserState(net: Network): OptimiserState {
  return {
    of: null,
    step: 0,
    W: net.layers.map((layer) => slots(layer.W.length)),
    b: net.layers.map((layer) => slots(layer.nOut)),
  }
}

export function copyOptimiserState(from: OptimiserState): OptimiserState {
  const copy = (s: Slots): Slots => ({ first: s.first.slice(), second: s.second.slice() })
  return { of: from.of, step: from.step, W: from.W.map(copy), b: from.b.map(copy) }
}

type Update = (p: Float64Array, g: Float64Array, s: Slots, rate: number, t: number, l2: number) => void

const UPDATES: Record<OptimiserName, Update> = {
  sgd: (p, g, _, rate, __, l2) => {
    for (let k = 0; k < p.length; k++) p[k] -= rate * (g[k] + l2 * p[k])
  },
  momentum: (p, g, s, rate, _, l2) => {
    const v = s.first
    for (let k = 0; k < p.length; k++) {
      v[k] = MOMENTUM * v[k] + (g[k] + l2 * p[k])
      p[k] -= rate * v[k]
    }
  },
  adam: (p, g, s, rate, t, l2) => {
    const { first: m, second: v } = s
    const scale = rate / (1 - BETA1 ** t)
    const root = Math.sqrt(1 - BETA2 ** t)
    for (let k = 0; k < p.length; k++) {
      const slope = g[k] + l2 * p[k]
      m[k] = BETA1 * m[k] + (1 - BETA1) * slope
      v[k] = BETA2 * v[k] + (1 - BETA2) * slope * slope
      p[k] -= (scale * m[k]) / (Math.sqrt(v[k]) / root + EPSILON)
    }
  },
}

/** One step with the gradients of a trace. Changes the network and the state of the optimizer. */
export function optimiserStep(net: Network, t: Trace, of: OptimiserState, name: OptimiserName, rate: number, l2 = 0): void {
  if (of.of !== name) {
    for (const { first, second } of [...of.W, ...of.b]) (first.fill(0), second.fill(0))
    of.of = name
    of.step = 0
  }
  of.step++
  net.layers.forEach((layer, l) => {
    UPDATES[name](layer.W, t.layers[l].dW, of.W[l], rate, of.step, l2)
    UPDATES[name](layer.b, t.layers[l].db, of.b[l], rate, of.step, 0)
  })
}
