// The size of signals and of gradients by depth: predicted by the mean-field recursion, and measured.
//
//   forward    q₁ = n σ_w² E[x²],  q_{l+1} = n σ_w² E[f(√q_l u)²]          u standard normal
//   backward   g_l = n σ_w² E[f′(√q_l u)²] g_{l+1}                         g at the last layer is 1
//
// q is the mean square of z, g that of ∂L/∂z relative to the last layer's.
import { activation } from './activations.ts'
import { initialise, SCHEMES, type Scheme } from './initialisation.ts'
import { forward, zeroNetwork, emptyTrace } from './network.ts'
import { Random } from './random.ts'

/** E[h(u)] for u standard normal by the midpoint rule: exact to rounding for smooth h. No node is at 0, where h may jump. */
export function gaussianMean(h: (u: number) => number): number {
  const [N, reach] = [1600, 9]
  let sum = 0
  for (let k = 0; k < N; k++) {
    const u = -reach + (2 * reach * (k + 0.5)) / N
    sum += (h(u) * Math.exp((-u * u) / 2)) / Math.sqrt(2 * Math.PI)
  }
  return (sum * 2 * reach) / N
}

export interface SignalSizes {
  readonly signal: number[]
  readonly gradient: number[]
}

export function predictedSizes(name: string, scheme: Scheme, width: number, depth: number): SignalSizes {
  const { f, df } = activation(name)
  const spread = width * SCHEMES[scheme](width, width)
  const signal = [spread]
  for (let l = 1; l < depth; l++) signal.push(spread * gaussianMean((u) => f(Math.sqrt(signal[l - 1]) * u) ** 2))
  const gradient = new Array<number>(depth).fill(1)
  for (let l = depth - 2; l >= 0; l--)
    gradient[l] = gradient[l + 1] * spread * gaussianMean((u) => df(Math.sqrt(signal[l]) * u) ** 2)
  return { signal, gradient }
}

/** The same sizes, measured on a random network with standard normal rows and a random gradient at the last z. */
export function measuredSizes(name: string, scheme: Scheme, width: number, depth: number, seed: number, rows = 64): SignalSizes {
  const net = zeroNetwork(new Array<number>(depth + 1).fill(width), name)
  initialise(net, scheme, seed)
  const random = new Random(seed + 1)
  const t = emptyTrace(net, rows)
  forward(
    net,
    Float64Array.from({ length: rows * width }, () => random.normal()),
    t,
  )
  const square = (values: Float64Array): number => values.reduce((sum, v) => sum + v * v, 0) / values.length
  const gradient = new Array<number>(depth).fill(1)
  let delta: Float64Array = Float64Array.from({ length: rows * width }, () => random.normal())
  const first = square(delta)
  const { df } = activation(name)
  for (let l = depth - 2; l >= 0; l--) {
    const { W } = net.layers[l + 1]
    const below = new Float64Array(rows * width)
    for (let r = 0; r < rows; r++)
      for (let o = 0; o < width; o++) {
        const d = delta[r * width + o]
        for (let i = 0; i < width; i++) below[r * width + i] += d * W[o * width + i]
      }
    for (let k = 0; k < below.length; k++) below[k] *= df(t.layers[l].z[k])
    delta = below
    gradient[l] = square(delta) / first
  }
  return { signal: t.layers.map((layer) => square(layer.z)), gradient }
}
