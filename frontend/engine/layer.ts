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
  /** Weight (nOut, nIn), factor and bias, if the layer is only a linear map. */
  readonly linear?: { readonly W: Float64Array; readonly b: Float64Array | null; readonly factor: number }
  /** For each output of encoded columns: its input, and the index within the numbers of that input. */
  readonly origins?: readonly Origin[]
  /** For the end of a residual block: it adds values[skip], the input of the block. */
  readonly skip?: number
  forward(x: Float64Array, B: number): Float64Array
  backward(x: Float64Array, y: Float64Array, dy: Float64Array, B: number): Float64Array
}

/** Thrown if the page cannot compute a network. The message names the layer and the reason. */
export class Unsupported extends Error {}
