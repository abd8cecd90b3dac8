// What the figures need of a network to draw it and to let its weights be dragged. The explorer implements it.
import type { Dataset } from '../engine/datasets.ts'
import type { Network, Trace, UnitIndex, WeightIndex } from '../engine/network.ts'
import type { Health } from '../engine/trainer.ts'

export interface NetworkModel {
  readonly net: Network
  readonly data: Dataset
  readonly widths: readonly number[]
  readonly trace: Trace
  readonly outputs: Float64Array
  readonly health: readonly (readonly Health[])[]
  /** Grows with every change of a weight; `net` itself stays the same object. */
  readonly stamp: number
  readonly training: boolean
  /** Rows that are right, or the loss, in words. */
  readonly standing: string
  /** The row whose numbers are shown, the one that was chosen, and the one under the pointer. */
  readonly shown: number
  readonly row: number
  preview: number | null
  readonly unit: UnitIndex | null
  readonly place: WeightIndex | null
  /** What the pointer or the focus is on. */
  near: WeightIndex | null
  dragging: boolean
  nameOf(layer: number, unit: number): string
  nameOfPlace(weight: WeightIndex): string
  decision(row: number): number
  pick(row: number): void
  get(weight: WeightIndex): number
  gradient(weight: WeightIndex): number
  /** Changes one number in the middle of a drag. */
  put(weight: WeightIndex, value: number): void
  /** Ends a change. */
  keep(): void
}
