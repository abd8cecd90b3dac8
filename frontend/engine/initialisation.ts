// Initial weights: W ~ N(0, v) with a variance v for each layer, b = 0. Names and variances are those of `init` in Python.
//
//   xavier   v = 2/(I + O)          he   v = 2/I          lecun   v = 1/I          normal(v)   v itself
import type { Network } from './network.ts'
import { Random } from './random.ts'

/** Variance of the weights of a layer with `nIn` inputs and `nOut` units. */
export const SCHEMES = {
  xavier: (nIn: number, nOut: number): number => 2 / (nIn + nOut),
  he: (nIn: number): number => 2 / nIn,
  lecun: (nIn: number): number => 1 / nIn,
  'normal(1)': (): number => 1,
  'normal(0.01)': (): number => 0.01,
  zeros: (): number => 0,
} satisfies Record<string, (nIn: number, nOut: number) => number>

export type Scheme = keyof typeof SCHEMES

/** Draws every weight. Sets biases to 0, or draws them too, so that the kinks are not all at 0. */
export function initialise(net: Network, scheme: Scheme, seed: number, biasSpread = 0): void {
  const random = new Random(seed)
  for (const layer of net.layers) {
    const s = Math.sqrt(SCHEMES[scheme](layer.nIn, layer.nOut))
    for (let k = 0; k < layer.W.length; k++) layer.W[k] = s * random.normal()
    for (let k = 0; k < layer.nOut; k++) layer.b[k] = s ? biasSpread * random.normal() : 0
  }
}
