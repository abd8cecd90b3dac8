// What Python writes into the page.
import type { ModelData } from './userModel/modelData.ts'

/** What the catalogue knows of an activation. */
export interface ActivationFacts {
  readonly name: string
  readonly formula: string
  readonly flops: number
  readonly flops_backward: number
  readonly cached: string
  readonly vanishes: boolean
  readonly dies: boolean
  readonly kinks: readonly number[]
  /** Largest |f′|; null where it has none. */
  readonly max_slope: number | null
  /** What keeps the variance of a layer; null where none does. */
  readonly gain: number | null
  /** Where its slope stays under a hundredth of its largest. */
  readonly flat_below: number | null
  readonly flat_above: number | null
}

export interface PageData {
  readonly catalogue?: readonly ActivationFacts[]
  readonly model?: ModelData
}
