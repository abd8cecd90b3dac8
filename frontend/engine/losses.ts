// The losses of multilayer.nn.losses that the pages use. The raw outputs are z (B, C). The loss of a batch is the mean over
// rows, so `slope` divided by B is δ of the output layer.
import { logistic, softplus } from './special.ts'

export interface Loss {
  readonly name: string
  /** Loss of one row; `at` is the index of its first value in z and y. */
  readonly row: (z: Float64Array, y: Float64Array, at: number, C: number) => number
  /** ∂(loss of the row)/∂z into `out`, at the same place. */
  readonly slope: (z: Float64Array, y: Float64Array, at: number, C: number, out: Float64Array) => void
}

/** log Σ eᶻ over the C outputs from `at` on. */
export function logSum(z: ArrayLike<number>, at = 0, C = z.length): number {
  let top = -Infinity
  for (let c = 0; c < C; c++) top = Math.max(top, z[at + c])
  let sum = 0
  for (let c = 0; c < C; c++) sum += Math.exp(z[at + c] - top)
  return top + Math.log(sum)
}

export const LOSSES = {
  /** mean_c (z − y)². */
  mse: {
    name: 'mse',
    row: (z, y, at, C) => {
      let sum = 0
      for (let c = at; c < at + C; c++) sum += (z[c] - y[c]) ** 2
      return sum / C
    },
    slope: (z, y, at, C, out) => {
      for (let c = at; c < at + C; c++) out[c] = (2 * (z[c] - y[c])) / C
    },
  },
  /** mean_c softplus(z) − y z. */
  binary_cross_entropy: {
    name: 'binary_cross_entropy',
    row: (z, y, at, C) => {
      let sum = 0
      for (let c = at; c < at + C; c++) sum += softplus(z[c]) - y[c] * z[c]
      return sum / C
    },
    slope: (z, y, at, C, out) => {
      for (let c = at; c < at + C; c++) out[c] = (logistic(z[c]) - y[c]) / C
    },
  },
  /** −Σ_c y_c log softmax(z)_c, where y is the probability of each class. */
  cross_entropy: {
    name: 'cross_entropy',
    row: (z, y, at, C) => {
      const whole = logSum(z, at, C)
      let sum = 0
      for (let c = at; c < at + C; c++) sum -= y[c] * (z[c] - whole)
      return sum
    },
    slope: (z, y, at, C, out) => {
      const whole = logSum(z, at, C)
      for (let c = at; c < at + C; c++) out[c] = Math.exp(z[c] - whole) - y[c]
    },
  },
} satisfies Record<string, Loss>

export type LossName = keyof typeof LOSSES

/** softmax(z) of one row. */
export function softmax(z: ArrayLike<number>): Float64Array {
  const whole = logSum(z)
  return Float64Array.from(z, (value) => Math.exp(value - whole))
}
