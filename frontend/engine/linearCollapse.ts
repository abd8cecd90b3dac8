// Layers without an activation between them are equivalent to one layer: W = W₂W₁, b = W₂b₁ + b₂.
import { dense, type Dense, type Network } from './network.ts'

/** The single layer that is equivalent to a network without activations; null if the network has an activation. */
export function collapseLinear(net: Network): Dense | null {
  if (net.layers.slice(0, -1).some((layer) => layer.activation !== 'identity')) return null
  return net.layers.slice(1).reduce(joined, net.layers[0])
}

function joined(below: Dense, above: Dense): Dense {
  const whole = dense(below.nIn, above.nOut, 'identity')
  for (let o = 0; o < above.nOut; o++) {
    let b = above.b[o]
    for (let k = 0; k < above.nIn; k++) {
      const w = above.W[o * above.nIn + k]
      b += w * below.b[k]
      for (let i = 0; i < below.nIn; i++) whole.W[o * below.nIn + i] += w * below.W[k * below.nIn + i]
    }
    whole.b[o] = b
  }
  return whole
}
