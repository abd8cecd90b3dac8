// Dragging one weight: what follows of it, by increments. One unit's z moves by Δ·x, so its activation moves, and the
// next layer's z by that times one column; only layers above are computed whole. Rounding adds up over many
// increments, so a drag ends with a whole pass.
import { activation } from './activations.ts'
import { affine, type Network, type Trace } from './network.ts'

/** Moves W[o, i] of layer l by `change`, or b[o] where i is −1, and brings z and a of the trace up to date. */
export function nudge(net: Network, t: Trace, l: number, o: number, i: number, change: number): void {
  const layer = net.layers[l]
  const { nIn, nOut } = layer
  if (i < 0) layer.b[o] += change
  else layer.W[o * nIn + i] += change
  const here = t.layers[l]
  const { f } = activation(layer.activation)
  const moved = new Float64Array(t.B)
  for (let r = 0; r < t.B; r++) {
    const k = r * nOut + o
    here.z[k] += i < 0 ? change : change * here.x[r * nIn + i]
    const a = f(here.z[k])
    moved[r] = a - here.a[k]
    here.a[k] = a
  }
  if (l + 1 < net.layers.length) follow(net, t, l + 1, o, moved)
}

/** Input `unit` of layer l moved by `moved` in each row: one column into its z, then the rest as usual. */
function follow(net: Network, t: Trace, l: number, unit: number, moved: Float64Array): void {
  const { nIn, nOut, W } = net.layers[l]
  const here = t.layers[l]
  for (let r = 0; r < t.B; r++) {
    if (moved[r] === 0) continue
    for (let o = 0; o < nOut; o++) here.z[r * nOut + o] += W[o * nIn + unit] * moved[r]
  }
  for (let above = l; above < net.layers.length; above++) {
    const layer = net.layers[above]
    const { f } = activation(layer.activation)
    const s = t.layers[above]
    if (above > l) affine(layer, s.x, s.z, t.B)
    for (let k = 0; k < s.z.length; k++) s.a[k] = f(s.z[k])
  }
}
