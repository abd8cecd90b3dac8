// Numerical gradient check: the central difference of the loss for one weight, without back-propagation.
import { clone, forward, computeLoss, emptyTrace } from '../engine/network.ts'
import type { WeightIndex } from '../engine/network.ts'
  import type { Playground } from './playground.svelte.ts'

export interface GradientCheck {
  readonly epsilon: number
  readonly above: number
  readonly below: number
  readonly slope: number
  readonly agrees: boolean
}

/** The rounding error of the loss is divided by ε, the truncation error grows with ε². At 1e-5 both are near 1e-10. */
const EPSILON = 1e-5

export function checkGradient(playground: Playground, place: WeightIndex): GradientCheck {
  const net = clone(playground.net)
  const layer = net.layers[place.layer]
  const [part, k] = place.from < 0 ? [layer.b, place.to] : [layer.W, place.to * layer.nIn + place.from]
  const t = emptyTrace(net, playground.data.y.length)
  const first = part[k]
  const at = (value: number): number => {
    part[k] = value
    forward(net, playground.data.x, t)
    return computeLoss(net, playground.data.y, t, playground.loss)
  }
  const [above, below] = [at(first + EPSILON), at(first - EPSILON)]
  const slope = (above - below) / (2 * EPSILON)
  const gap = Math.abs(slope - playground.gradient(place))
  return { epsilon: EPSILON, above, below, slope, agrees: gap <= 1e-7 * Math.max(1, Math.abs(slope)) }
}
