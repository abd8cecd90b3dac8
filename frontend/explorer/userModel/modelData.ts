// A trained network in the form that Python writes into the page, and functions that unpack its numbers.
import type { Spec } from '../../engine/layer.ts'
import type { Finding } from '../../shared/finding.ts'

export interface Packed {
  readonly type: 'f4' | 'f8'
  readonly shape: readonly number[]
  readonly data: string
}

export interface Feature {
  readonly name: string
  readonly kind: 'number' | 'flag' | 'category'
  readonly center: number
  readonly scale: number
  readonly robust: boolean
  readonly values: readonly string[]
}

export interface Output {
  readonly kind: 'binary' | 'multiclass' | 'multilabel' | 'regression' | 'multioutput' | 'numbers'
  readonly names: readonly string[]
  readonly classes?: readonly (readonly unknown[])[]
  readonly mean?: readonly number[]
  readonly std?: readonly number[]
  readonly loss: string
  readonly link?: string | null
  readonly per_target?: number
  readonly quantiles?: readonly number[]
  /** Outputs are divided by it before the link function. */
  readonly temperature?: number
  /** Bounds of standardized outputs, by output; empty if there are no bounds. */
  readonly low?: readonly number[]
  readonly high?: readonly number[]
}

export interface LayerCost {
  readonly name: string
  readonly what: string
  readonly d_in: number
  readonly d_out: number
  readonly parameters: number
  readonly forward: number
  readonly backward: number
}

export interface ModelData {
  readonly text: string
  readonly spec: Spec
  /** Why the page cannot compute the network; empty if it can. */
  readonly reduced: string
  /** The tensors of every member, or of one member if all are too large for a page. */
  readonly tensors: readonly Readonly<Record<string, Packed>>[]
  readonly features: readonly Feature[]
  readonly rows: Packed
  /** Index of each row in its table; empty if there is no table. */
  readonly places: readonly number[]
  /** A class, the labels that apply, a number, or several numbers. */
  readonly targets: readonly unknown[] | null
  /** What computes the predictions, such as "calibrated average of 8 members". */
  readonly made_of: string
  /** Score of the whole model on all rows, as computed in Python; null if the rows have no targets. */
  readonly score: { readonly name: string; readonly value: number; readonly rows: number } | null
  /** Raw outputs by member, row and output, computed in Python. */
  readonly predictions: readonly (readonly (readonly number[])[])[]
  readonly output: Output
  /** Identifies the model. */
  readonly mark: string
  /** The member that is shown first, and the number of members. */
  readonly member: number
  readonly members: number
  readonly image: readonly [number, number, number] | null
  /** Faults of the training run; empty if the page was made from a model file. */
  readonly findings: readonly Finding[]
  readonly cost: { readonly forward: number; readonly parameters: number; readonly layers: readonly LayerCost[] }
}

/** Little-endian floats in base64 as float64. */
export function unpack(from: Packed): Float64Array {
  const text = atob(from.data)
  const bytes = new Uint8Array(text.length)
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k)
  return from.type === 'f4' ? new Float64Array(new Float32Array(bytes.buffer)) : new Float64Array(bytes.buffer)
}

/** Converts an encoded input to the user's units. */
export function toUser(feature: Feature, x: number): number {
  const r = feature.robust ? x / Math.sqrt(1 - Math.min(0.999999, (x / 3) ** 2)) : x
  return r * feature.scale + feature.center
}

/** Encodes a number in the user's units, like Python. */
export function fromUser(feature: Feature, value: number): number {
  const r = (value - feature.center) / feature.scale
  return feature.robust ? r / Math.hypot(1, r / 3) : r
}
