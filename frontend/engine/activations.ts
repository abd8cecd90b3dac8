// The activations: f and f′ of each, with the same values as multilayer.nn.activations, also at kinks:
// ReLU′(0) = 0, LeakyReLU′(0) = α, step(0) = 1, hard tanh′(±1) = 0. Constants have the names and defaults of Python.
import { gated, logistic, logisticSlope, normalCdf, normalPdf, softplus } from './special.ts'

export type Constants = Readonly<Record<string, number>>

interface Entry {
  readonly f: (z: number, c: Constants) => number
  readonly df: (z: number, c: Constants) => number
  readonly constants?: Constants
}

export interface Activation {
  readonly name: string
  readonly f: (z: number) => number
  readonly df: (z: number) => number
}

const SELU_SCALE = 1.0507009873554805
const SELU_ALPHA = 1.6732632423543772
const GELU_C = Math.sqrt(2 / Math.PI)
const GELU_K = 0.044715

const exponential = (z: number, alpha: number, scale: number): number => scale * (z > 0 ? z : alpha * Math.expm1(z))
const exponentialSlope = (z: number, alpha: number, scale: number): number => scale * (z > 0 ? 1 : alpha * Math.exp(z))
const swish = (z: number, beta: number): number => gated(z, logistic(beta * z))
const swishSlope = (z: number, beta: number): number => logistic(beta * z) + gated(beta * z, logisticSlope(beta * z))

const ENTRIES: Record<string, Entry> = {
  identity: { f: (z) => z, df: () => 1 },
  step: { f: (z) => (Number.isNaN(z) ? z : z >= 0 ? 1 : 0), df: () => 0 },
  polynomial: { f: (z, c) => z ** c.p, df: (z, c) => c.p * z ** (c.p - 1), constants: { p: 2 } },
  sqrt: { f: (z) => Math.sqrt(z), df: (z) => 0.5 / Math.sqrt(z) },
  sigmoid: { f: (z, c) => logistic(c.a * z), df: (z, c) => c.a * logisticSlope(c.a * z), constants: { a: 1 } },
  tanh: { f: (z) => Math.tanh(z), df: (z) => 4 * logisticSlope(2 * z) },
  hard_tanh: { f: (z) => Math.min(1, Math.max(-1, z)), df: (z) => (Math.abs(z) < 1 ? 1 : 0) },
  sin: { f: (z) => Math.sin(z), df: (z) => Math.cos(z) },
  relu: { f: (z) => Math.max(z, 0), df: (z) => (z > 0 ? 1 : 0) },
  leaky_relu: {
    f: (z, c) => (z > 0 ? z : c.alpha * z),
    df: (z, c) => (z > 0 ? 1 : c.alpha),
    constants: { alpha: 0.01 },
  },
  elu: {
    f: (z, c) => exponential(z, c.alpha, 1),
    df: (z, c) => exponentialSlope(z, c.alpha, 1),
    constants: { alpha: 1 },
  },
  selu: {
    f: (z) => exponential(z, SELU_ALPHA, SELU_SCALE),
    df: (z) => exponentialSlope(z, SELU_ALPHA, SELU_SCALE),
  },
  softplus: { f: softplus, df: logistic },
  gelu: { f: (z) => gated(z, normalCdf(z)), df: (z) => normalCdf(z) + gated(z, normalPdf(z)) },
  gelu_tanh: {
    f: (z) => gated(z, logistic(2 * GELU_C * (z + GELU_K * z ** 3))),
    df: (z) => {
      const u = 2 * GELU_C * (z + GELU_K * z ** 3)
      return logistic(u) + gated(2 * GELU_C * (z + 3 * GELU_K * z ** 3), logisticSlope(u))
    },
  },
  silu: { f: (z) => swish(z, 1), df: (z) => swishSlope(z, 1) },
  swish: { f: (z, c) => swish(z, c.beta), df: (z, c) => swishSlope(z, c.beta), constants: { beta: 1 } },
  mish: {
    f: (z) => gated(z, Math.tanh(softplus(z))),
    df: (z) => {
      const s = softplus(z)
      return Math.tanh(s) + gated(z, 4 * logisticSlope(2 * s) * logistic(z))
    },
  },
}

/** The names of all activations. */
export const ACTIVATIONS: readonly string[] = Object.keys(ENTRIES)

/** The activations that the playground offers, with their display names. */
export const OFFERED: Readonly<Record<string, string>> = {
  identity: 'none',
  step: 'step',
  sigmoid: 'sigmoid',
  tanh: 'tanh',
  relu: 'ReLU',
  leaky_relu: 'leaky ReLU',
  elu: 'ELU',
  gelu: 'GELU',
  silu: 'SiLU',
  mish: 'Mish',
  softplus: 'softplus',
}

const made = new Map<string, Activation>()

/** Returns the activation with its constants. */
export function activation(name: string, constants: Constants = {}): Activation {
  const entry = ENTRIES[name]
  if (!entry) throw new Error(`unknown activation ${name}`)
  const c = { ...entry.constants, ...constants }
  const key = `${name}(${JSON.stringify(c)})`
  let found = made.get(key)
  if (!found) made.set(key, (found = { name, f: (z) => entry.f(z, c), df: (z) => entry.df(z, c) }))
  return found
}
