// What the figures need of a network to draw it and to let its weights be dragged. The explorer implements it.
import type { Dataset } from '../engine/datasets.ts'
import type { Network, Trace, UnitIndex, WeightIndex } from '../engine/network.ts'
import type { UnitHealth } from '../engine/trainer.ts'

export interface NetworkModel {
  readonly net: Network
  readonly data: Dataset
  readonly widths: readonly number[]
  readonly trace: Trace
  readonly outputs: Float64Array
  readonly health: readonly (readonly UnitHealth[])[]
  /** Grows with every change of a weight; `net` itself stays the same object. */
  readonly weightsVersion: number
  readonly training: boolean
  /** Rows that are right, or the loss, in words. */
  readonly summary: string
  /** The row whose numbers are shown, the one that was chosen, and the one under the pointer. */
  readonly shownRow: number
  readonly selectedRow: number
  hoveredRow: number | null
  readonly selectedUnit: UnitIndex | null
  readonly selectedWeight: WeightIndex | null
  /** What the pointer or the focus is on. */
  hoveredWeight: WeightIndex | null
  dragging: boolean
  unitName(layer: number, unit: number): string
  weightName(weight: WeightIndex): string
  predictedClass(row: number): number
  selectRow(row: number): void
  getWeight(weight: WeightIndex): number
  gradient(weight: WeightIndex): number
  /** Changes one number in the middle of a drag. */
  moveWeight(weight: WeightIndex, value: number): void
  /** Ends a change. */
  commit(): void
}
