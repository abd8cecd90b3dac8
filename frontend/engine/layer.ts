// A layer of a trained network: its description from Python, its tensors, and its forward and backward pass.
export type Tensors = Readonly<Record<string, Float64Array>>

export interface LayerSpec {
  readonly kind: string
  readonly [field: string]: unknown
}

export interface Spec {
  readonly inputs: { readonly numeric: number; readonly categories: readonly number[] }
  readonly layers: readonly LayerSpec[]
}

export interface Origin {
  readonly input: number
  readonly part: number
  /** How many numbers that input becomes. */
  readonly parts: number
  /** Whether the part represents one value of a category. */
  readonly oneHot: boolean
}

/** One layer: y (B, nOut) of x (B, nIn), and ∂L/∂x of ∂L/∂y for the same x. */
export interface Layer {
  readonly name: string
  readonly kind: string
  readonly nIn: number
  readonly nOut: number
  /** Each output depends only on the input of the same index, so one unit can be updated separately. */
  readonly elementwise: boolean
  /** A linear map's weight (nOut, nIn) with its factor and bias, where that is all it does. */
  readonly linear?: { readonly W: Float64Array; readonly b: Float64Array | null; readonly factor: number }
  /** Where each output of typed columns comes from: the input, and which of its numbers. */
  readonly origins?: readonly Origin[]
  /** The end of a residual block adds values[skip], what went into the block. */
  readonly skip?: number
  forward(x: Float64Array, B: number): Float64Array
  backward(x: Float64Array, y: Float64Array, dy: Float64Array, B: number): Float64Array
}

/** Why the page cannot compute a network: the layer and what of it. */
export class Unsupported extends Error {}
