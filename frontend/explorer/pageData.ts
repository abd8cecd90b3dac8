// The data that Python writes into the page.
import type { ModelData } from './userModel/modelData.ts'

/** The properties of an activation, from the catalogue of Python. */
export interface ActivationFacts {
  readonly name: string
  readonly formula: string
  readonly flops: number
  readonly flops_backward: number
  readonly cached: string
  readonly vanishes: boolean
  readonly dies: boolean
  readonly kinks: readonly number[]
  /** Largest |f′|; null if it is unbounded. */
  readonly max_slope: number | null
  /** The factor of the initial weights that preserves the variance of a layer; null if no factor does. */
  readonly gain: number | null
  /** Below and above these z, |f′| stays under a hundredth of its maximum. */
  readonly flat_below: number | null
  readonly flat_above: number | null
}

export interface PageData {
  readonly catalogue?: readonly ActivationFacts[]
  readonly model?: ModelData
}
