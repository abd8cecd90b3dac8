// The curve that a network is fitted to: a predefined or a drawn one. Every stroke can be undone.
import { curveDataset, DATASETS } from '../engine/datasets.ts'
import { UndoHistory } from './undoHistory.svelte.ts'

export const POINTS = 121
export const REACH = 2
export const MAX_HEIGHT = 1.6
export const CURVES: readonly string[] = ['hills', 'wave', 'bump', 'steps']

/** The x of every point. */
export const X = Float64Array.from({ length: POINTS }, (_, k) => -REACH + (2 * REACH * k) / (POINTS - 1))

/** Width of the change to both sides of a moved point, in points. */
const WIDE = 5

const sampled = (name: string): number[] => {
  const found =
    name === 'hills' ? curveDataset('hills', '', (v) => 0.7 * Math.sin(3 * v) + 0.35 * Math.cos(7 * v), POINTS) : DATASETS[name]()
  const at = (v: number): number => Math.round(((v + REACH) / (2 * REACH)) * (found.x.length - 1))
  return Array.from(X, (v) => found.y[at(v)])
}

export class TargetCurve {
  curve = $state.raw<string | number[]>('hills')
  readonly y = $derived(Float64Array.from(typeof this.curve === 'string' ? sampled(this.curve) : this.curve))
  private readonly history = new UndoHistory<string | number[]>('hills')

  get canUndo(): boolean {
    return this.history.canUndo
  }

  get canRedo(): boolean {
    return this.history.canRedo
  }

  undo(): void {
    this.curve = this.history.undo() ?? this.curve
  }

  redo(): void {
    this.curve = this.history.redo() ?? this.curve
  }

  choose(curve: string | number[]): void {
    this.curve = curve
    this.keep()
  }

  /** Ends a stroke. */
  keep(): void {
    if (this.curve !== this.history.current) this.history.push(this.curve)
  }

  /** Draws a line from point `from`, whose height does not change, to point `to` at `height`. */
  line(from: number, to: number, height: number): void {
    const next = Array.from(this.y)
    const [start, count] = [next[from], Math.abs(to - from)]
    for (let s = 0; s <= count; s++)
      next[from + Math.sign(to - from) * s] = rounded(count ? start + ((height - start) * s) / count : height)
    this.curve = next
  }

  /** Moves point k to `height`, and its neighbors by an amount that decreases with their distance. */
  lift(k: number, height: number): void {
    const by = height - this.y[k]
    this.curve = Array.from(this.y, (v, j) => rounded(v + by * Math.exp(-(((j - k) / WIDE) ** 2))))
  }
}

/** Limits a height to the plot and rounds it, which keeps links short. */
const rounded = (value: number): number => Math.round(1000 * Math.max(-MAX_HEIGHT, Math.min(MAX_HEIGHT, value))) / 1000
