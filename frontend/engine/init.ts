// First weights: W ~ N(0, s²) by layer, b = 0.
//
//   xavier   s² = 2/(I + O)          he   s² = 2/I          lecun   s² = 1/I
import type { Network } from './network.ts'
import { Random } from './random.ts'

export const SCHEMES = {
  xavier: (nIn: number, nOut: number): number => Math.sqrt(2 / (nIn + nOut)),
  he: (nIn: number): number => Math.sqrt(2 / nIn),
  lecun: (nIn: number): number => Math.sqrt(1 / nIn),
  'normal(1)': (): number => 1,
  'normal(0.01)': (): number => 0.01,
  zero: (): number => 0,
} satisfies Record<string, (nIn: number, nOut: number) => number>

export type Scheme = keyof typeof SCHEMES

/** Draws every weight anew; biases become 0. Biases spread a little where all else would put every kink at 0. */
export function initialise(net: Network, scheme: Scheme, seed: number, biasSpread = 0): void {
  const random = new Random(seed)
  for (const layer of net.layers) {
    const s = SCHEMES[scheme](layer.nIn, layer.nOut)
    for (let k = 0; k < layer.W.length; k++) layer.W[k] = s * random.normal()
    for (let k = 0; k < layer.nOut; k++) layer.b[k] = s ? biasSpread * random.normal() : 0
  }
}
