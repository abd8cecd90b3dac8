// What was changed of the user's network, as plain data: for undo, the link and the export.
import type { InferenceNetwork } from '../../engine/inference.ts'
import type { ModelData } from './modelData.ts'

export interface ModelEdits {
  readonly row: number
  /** Which inputs, and their values as the network reads them. */
  readonly inputs: readonly (readonly [number, number])[]
  /** Member, layer, unit it leads to, unit it comes from (−1: bias), value. */
  readonly weights: readonly (readonly [number, number, number, number, number])[]
}

export interface SavedState extends ModelEdits {
  /** Tells one model from another. */
  readonly model: string
  readonly member: number
  readonly layer: number
  readonly unit: number
  readonly output: number
  /** The weight that is looked at leads from here to the unit. */
  readonly from: number | null
}

/** The properties of a model that a state must match. */
export interface StateBounds {
  readonly data: ModelData
  readonly networks: readonly InferenceNetwork[]
  readonly B: number
  readonly nIn: number
}

const within = (value: unknown, low: number, count: number): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= low && value < count

/** A state from anyone: of this model and within its bounds, or an error that says what is not. */
export function checkSavedState(value: unknown, userModel: StateBounds): SavedState {
  if (typeof value !== 'object' || value === null) throw new Error('it holds no state of your network')
  const state = value as SavedState
  const { layers, nOut } = userModel.networks[0]
  const linear = (layer: number, to: number, from: number): boolean => {
    const op = within(layer, 0, layers.length) ? layers[layer] : undefined
    return !!op?.linear && within(to, 0, op.nOut) && within(from, op.linear.b ? -1 : 0, op.nIn)
  }
  if (state.model !== userModel.data.mark) throw new Error('it was made with another model')
  if (!within(state.row, 0, userModel.B)) throw new Error(`its row must be one of ${userModel.B}`)
  if (!within(state.member, 0, userModel.networks.length)) throw new Error(`its member must be one of ${userModel.networks.length}`)
  if (!within(state.output, 0, nOut)) throw new Error(`its output must be one of ${nOut}`)
  if (!within(state.layer, 0, layers.length) || !within(state.unit, 0, layers[state.layer].nOut))
    throw new Error('it looks at a unit that is not there')
  if (state.from !== null && !linear(state.layer, state.unit, state.from))
    throw new Error('it looks at a weight that is not there')
  if (!Array.isArray(state.inputs) || !state.inputs.every((pair) => Array.isArray(pair) && given(pair, userModel)))
    throw new Error('it changes inputs that are not there')
  const known = (one: unknown): boolean =>
    Array.isArray(one) &&
    within(one[0], 0, userModel.networks.length) &&
    linear(one[1] as number, one[2] as number, one[3] as number) &&
    Number.isFinite(one[4])
  if (!Array.isArray(state.weights) || !state.weights.every(known))
    throw new Error('it changes weights that are not there')
  return state
}

/** An input that is there, with a number or, for a category, one of its codes. */
function given([i, value]: readonly unknown[], userModel: StateBounds): boolean {
  if (!within(i, 0, userModel.nIn)) return false
  const { kind, values } = userModel.data.features[i]
  return kind === 'category' ? within(value, 0, values.length + 1) : Number.isFinite(value)
}
