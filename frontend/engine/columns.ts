// The first layer of networks on tables. It takes numbers directly or as embeddings, and categories as one-hot or learned vectors.
// A row has its numbers first, then a code for each category column: 0 for missing or unknown, 1 … n for its values.
import { product } from './layers.ts'
import { Unsupported, type LayerSpec, type Layer, type Spec, type Tensors } from './layer.ts'

type Embed = (x: number, feature: number) => number[]

export function makeColumns(spec: Spec, layer: LayerSpec, tensors: Tensors): Layer {
  const { numeric: F, categories } = spec.inputs
  const name = 'columns1'
  const embed = embedding(layer, F, tensors, name)
  const looked = categories.map((n, i) => lookup(layer, n, tensors[`${name}.table${i + 1}`]))
  const row = (x: Float64Array): number[] => [
    ...Array.from(x.subarray(0, F)).flatMap((value, f) => embed(value, f)),
    ...looked.flatMap((find, i) => find(x[F + i])),
  ]
  const nIn = F + categories.length
  const widths = [...Array.from({ length: F }, (_, f) => embed(0, f).length), ...looked.map((find) => find(0).length)]
  const origins = widths.flatMap((parts, input) =>
    Array.from({ length: parts }, (_, part) => ({
      input,
      part,
      parts,
      oneHot: input >= F && isOneHot(layer, categories[input - F]),
    })),
  )
  return {
    name,
    kind: 'columns',
    nIn,
    nOut: origins.length,
    origins,
    elementwise: false,
    forward: (x, B) =>
      Float64Array.from(Array.from({ length: B }, (_, r) => row(x.subarray(r * nIn, (r + 1) * nIn))).flat()),
    // Python computes no gradient below the columns either.
    backward: (x) => new Float64Array(x.length),
  }
}

const isOneHot = (layer: LayerSpec, n: number): boolean =>
  layer.categories === 'one-hot' || (layer.categories === 'auto' && n <= (layer.max_one_hot as number))

function lookup(layer: LayerSpec, n: number, table: Float64Array | undefined): (code: number) => number[] {
  const oneHot = isOneHot(layer, n)
  if (oneHot && n === 2) return (code) => [[0], [-1], [1]][code]
  if (oneHot) return (code) => Array.from({ length: n }, (_, k) => Number(k + 1 === code))
  const d = layer.d_category as number
  return (code) => Array.from(table!.subarray(code * d, (code + 1) * d))
}

function embedding(layer: LayerSpec, F: number, tensors: Tensors, name: string): Embed {
  if (layer.numeric === 'none' || F === 0) return (x) => [x]
  const n = layer.n as number
  const weight = tensors[`${name}.weight`]
  const bias = tensors[`${name}.bias`]
  const D = bias.length / F
  /** W_f · inside + b_f. The weight is stored with shape (F, K, D). */
  const mixed = (inside: number[], f: number): number[] => {
    const K = inside.length
    const W = new Float64Array(D * K)
    for (let k = 0; k < K; k++) for (let d = 0; d < D; d++) W[d * K + k] = weight[(f * K + k) * D + d]
    return Array.from(product(Float64Array.from(inside), 1, W, bias.subarray(f * D, (f + 1) * D), K))
  }
  const turns = (x: number, f: number): number[] =>
    Array.from(tensors[`${name}.frequency`].subarray(f * n, (f + 1) * n), (c) => 2 * Math.PI * x * c)
  switch (layer.numeric) {
    case 'plr':
      return (x, f) => {
        const v = turns(x, f)
        return mixed([...v.map(Math.cos), ...v.map(Math.sin)], f).map((z) => Math.max(z, 0))
      }
    case 'pbld': {
      const phase = tensors[`${name}.phase`]
      return (x, f) => [
        x,
        ...mixed(
          turns(x, f).map((v, k) => Math.cos(v + phase[f * n + k])),
          f,
        ),
      ]
    }
    case 'piecewise': {
      const edges = tensors[`${name}.edges`]
      return (x, f) => mixed(placed(x, edges.subarray(f * (n + 1), (f + 1) * (n + 1))), f)
    }
    default:
      throw new Unsupported(`${name} encodes numbers with ${String(layer.numeric)}, which the page cannot compute`)
  }
}

/** Position of x within each bin: 0 below the bin, 1 above it. The first bin has no lower limit, the last no upper limit. */
function placed(x: number, edges: Float64Array): number[] {
  const n = edges.length - 1
  return Array.from({ length: n }, (_, k) => {
    const t = (x - edges[k]) / (edges[k + 1] - edges[k])
    return Math.min(k === n - 1 ? Infinity : 1, Math.max(k === 0 ? -Infinity : 0, t))
  })
}
