// The interface that the figures need to draw a network and to drag its weights. The explorer implements it.
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
  /** Increases with every change of a weight; `net` remains the same object. */
  readonly weightsVersion: number
  readonly training: boolean
  /** The number of correct rows, or the loss, as text. */
  readonly summary: string
  /** The row whose values are shown, the selected row, and the row under the pointer. */
  readonly shownRow: number
  readonly selectedRow: number
  hoveredRow: number | null
  readonly selectedUnit: UnitIndex | null
  readonly selectedWeight: WeightIndex | null
  /** The element that has the pointer or the focus. */
  hoveredWeight: WeightIndex | null
  dragging: boolean
  unitName(layer: number, unit: number): string
  weightName(weight: WeightIndex): string
  predictedClass(row: number): number
  selectRow(row: number): void
  getWeight(weight: WeightIndex): number
  gradient(weight: WeightIndex): number
  /** Changes one number during a drag. */
  moveWeight(weight: WeightIndex, value: number): void
  /** Ends a change. */
  commit(): void
}
