// Trained networks, for prediction: the forward pass through a list of layers, and the gradient with respect to the inputs.
// The dense networks of the playground use network.ts instead, which also computes the gradients of weights.
//
// Dropout is off and batch norm uses its running statistics, as in prediction.
import { makeColumns } from './columns.ts'
import type { Layer, LayerSpec, Spec, Tensors } from './layer.ts'
import { makeLayer } from './layers.ts'

export class InferenceNetwork {
  readonly layers: readonly Layer[]
  readonly nOut: number

  constructor(
    readonly spec: Spec,
    readonly tensors: Tensors,
  ) {
    const [first, ...rest] = spec.layers
    const typed = first.kind === 'columns'
    const columns = typed ? makeColumns(spec, first, tensors) : null
    const start = columns ? columns.nOut : spec.inputs.numeric
    this.layers = [
      ...(columns ? [columns] : []),
      ...makeLayers(typed ? rest : spec.layers, start, tensors, '', columns ? 1 : 0),
    ]
    this.nOut = this.layers[this.layers.length - 1].nOut
  }

  /** Numbers per row: the numeric inputs, then a code for each category column. */
  get nIn(): number {
    return this.spec.inputs.numeric + this.spec.inputs.categories.length
  }

  /** The input of every layer and, last, the outputs. */
  run(x: Float64Array, B: number): Float64Array[] {
    const found = [x]
    for (let l = 0; l < this.layers.length; l++) this.advance(found, B, l)
    return found
  }

  /** Layer l: values[l + 1] from values[l]. */
  private advance(values: Float64Array[], B: number, l: number): void {
    const { forward, skip } = this.layers[l]
    const y = forward(values[l], B)
    values[l + 1] = skip === undefined ? y : added(y, values[skip])
  }

  /** ∂L/∂(input of every layer) and, last, ∂L/∂output, from ∂L/∂output. */
  back(values: readonly Float64Array[], dOut: Float64Array, B: number): Float64Array[] {
    const back: Float64Array[] = []
    back[this.layers.length] = dOut
    const meets = (l: number, d: Float64Array): void => void (back[l] = back[l] ? added(back[l], d) : d)
    for (let l = this.layers.length - 1; l >= 0; l--) {
      const { backward, skip } = this.layers[l]
      meets(l, backward(values[l], values[l + 1], back[l + 1], B))
      if (skip !== undefined) meets(skip, back[l + 1])
    }
    return back
  }

  /** Updates `values` by increments after a change of weight (o, i) of linear layer l, or of its bias if i is −1. */
  nudge(values: Float64Array[], B: number, l: number, o: number, i: number, change: number): void {
    const op = this.layers[l]
    const { W, b, factor } = op.linear!
    if (i < 0) b![o] += change
    else W[o * op.nIn + i] += change
    const y = values[l + 1]
    for (let r = 0; r < B; r++) y[r * op.nOut + o] += i < 0 ? change : change * factor * values[l][r * op.nIn + i]
    this.follow(values, B, l + 1, o)
  }

  /** Propagates a change of unit o of values[l]: one unit through elementwise layers, one column of the next linear layer,
   * then all units. */
  private follow(values: Float64Array[], B: number, l: number, o: number): void {
    let at = l
    while (at < this.layers.length && this.layers[at].elementwise) {
      const width = this.layers[at].nOut
      const one = new Float64Array(B * width)
      // An elementwise layer over the whole row costs no more than a lookup of the parameters of one unit.
      one.set(this.layers[at].forward(values[at], B))
      if (at + 1 < this.layers.length && this.layers[at + 1].linear) return this.column(values, B, at + 1, o, one)
      values[++at] = one
    }
    for (; at < this.layers.length; at++) this.advance(values, B, at)
  }

  /** Replaces values[l] by `fresh`, which differs in unit o, and adds the difference into linear layer l. */
  private column(values: Float64Array[], B: number, l: number, o: number, fresh: Float64Array): void {
    const op = this.layers[l]
    const { W, factor } = op.linear!
    const y = values[l + 1]
    for (let r = 0; r < B; r++) {
      const moved = factor * (fresh[r * op.nIn + o] - values[l][r * op.nIn + o])
      for (let k = 0; k < op.nOut; k++) y[r * op.nOut + k] += moved * W[k * op.nIn + o]
    }
    values[l] = fresh
    for (let at = l + 1; at < this.layers.length; at++) this.advance(values, B, at)
  }
}

const added = (a: Float64Array, b: Float64Array): Float64Array => a.map((value, k) => value + b[k])

/** Names layers like Python: linear1, relu1, residual1.linear1. The first has index `at`. */
export function makeLayers(layers: readonly LayerSpec[], nIn: number, tensors: Tensors, prefix: string, at = 0): Layer[] {
  const seen = new Map<string, number>()
  const found: Layer[] = []
  let width = nIn
  for (const layer of layers) {
    const label = labelOf(layer)
    seen.set(label, (seen.get(label) ?? 0) + 1)
    const name = `${prefix}${label}${seen.get(label)}`
    const start = at + found.length
    if (layer.kind === 'residual')
      found.push(...makeLayers(layer.layers as LayerSpec[], width, tensors, `${name}.`, start), sum(name, width, start))
    else found.push(makeLayer(layer, width, tensors, name))
    width = found[found.length - 1].nOut
  }
  return found
}

function labelOf(layer: LayerSpec): string {
  if (layer.kind === 'activation') return layer.name as string
  return layer.kind === 'glu' ? (layer.variant as string) : layer.kind
}

/** The end of a residual block. */
const sum = (name: string, width: number, skip: number): Layer => ({
  name,
  kind: 'residual',
  nIn: width,
  nOut: width,
  elementwise: false,
  skip,
  forward: (x) => x,
  backward: (_, __, dy) => dy,
})
