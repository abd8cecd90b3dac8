// One pass as a list of steps, in the order of the computation: z and a of each layer, the loss, then the backward pass
// from the last layer: δ, and from it (a) dW, (b) db and (c) dA of the layer below; (d) is the next δ. The last step is the
// update of the weights.
import type { Playground } from './playground.svelte.ts'

export type PassStepKind = 'z' | 'a' | 'loss' | 'delta' | 'dW' | 'db' | 'dA' | 'update'

export interface PassStep {
  readonly kind: PassStepKind
  readonly layer: number
}

export function passSteps(playground: Playground): PassStep[] {
  const last = playground.net.layers.length - 1
  const forward = playground.net.layers.flatMap((_, layer): PassStep[] =>
    layer === last
      ? [{ kind: 'z', layer }]
      : [
          { kind: 'z', layer },
          { kind: 'a', layer },
        ],
  )
  const backward: PassStep[] = []
  for (let layer = last; layer >= 0; layer--) {
    backward.push({ kind: 'delta', layer }, { kind: 'dW', layer }, { kind: 'db', layer })
    if (layer) backward.push({ kind: 'dA', layer })
  }
  return [...forward, { kind: 'loss', layer: last }, ...backward, { kind: 'update', layer: -1 }]
}

/** A matrix of numbers with the names of its rows and columns. */
export interface StepTable {
  readonly rows: readonly string[]
  readonly columns: readonly string[]
  readonly values: readonly (readonly number[])[]
}

export interface Term {
  readonly name: string
  readonly factors: readonly number[]
}

const matrix = (values: Float64Array, nRows: number, nColumns: number): number[][] =>
  Array.from({ length: nRows }, (_, r) => Array.from(values.subarray(r * nColumns, (r + 1) * nColumns)))

/** The numbers that a step computes. */
export function stepTable(playground: Playground, step: PassStep): StepTable {
  const t = playground.trace.layers[step.layer]
  const { nIn, nOut } = playground.net.layers[step.layer]
  const units = Array.from({ length: nOut }, (_, o) => playground.unitName(step.layer, o))
  const below = Array.from({ length: nIn }, (_, i) => playground.unitName(step.layer - 1, i))
  const { rows } = playground.data
  const B = rows.length
  switch (step.kind) {
    case 'dW':
      return { rows: units, columns: below, values: matrix(t.dW, nOut, nIn) }
    case 'db':
      return { rows: ['db'], columns: units, values: [Array.from(t.db)] }
    case 'dA':
      return { rows, columns: below, values: matrix(playground.trace.layers[step.layer - 1].dA, B, nIn) }
    case 'loss':
      return {
        rows,
        columns: ['output', 'target', 'loss'],
        values: rows.map((_, r) => [playground.outputs[r], playground.data.y[r], playground.trace.rowLoss[r]]),
      }
    case 'delta':
      return { rows, columns: units, values: matrix(t.delta, B, nOut) }
    case 'a':
      return { rows, columns: units, values: matrix(t.a, B, nOut) }
    default:
      return { rows, columns: units, values: matrix(t.z, B, nOut) }
  }
}

/** The products or terms that add up to entry (r, c) of a step's table. */
export function stepTerms(playground: Playground, step: PassStep, r: number, c: number, slope: (z: number) => number): Term[] {
  const t = playground.trace.layers[step.layer]
  const { nIn, nOut, W, b } = playground.net.layers[step.layer]
  const at = (unit: number): string => playground.unitName(step.layer, unit)
  switch (step.kind) {
    case 'z':
      return [
        ...Array.from({ length: nIn }, (_, i) => ({
          name: playground.unitName(step.layer - 1, i),
          factors: [t.x[r * nIn + i], W[c * nIn + i]],
        })),
        { name: 'bias', factors: [b[c]] },
      ]
    case 'delta':
      return [{ name: at(c), factors: [t.dA[r * nOut + c], slope(t.z[r * nOut + c])] }]
    case 'dW':
      return playground.data.rows.map((name, row) => ({ name, factors: [t.delta[row * nOut + r], t.x[row * nIn + c]] }))
    case 'db':
      return playground.data.rows.map((name, row) => ({ name, factors: [t.delta[row * nOut + c]] }))
    case 'dA':
      return Array.from({ length: nOut }, (_, o) => ({ name: at(o), factors: [t.delta[r * nOut + o], W[o * nIn + c]] }))
    default:
      return []
  }
}
