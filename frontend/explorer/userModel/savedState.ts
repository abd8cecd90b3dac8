// The changes of the user's network as plain data, for undo, links and exports.
import type { InferenceNetwork } from '../../engine/inference.ts'
import type { ModelData } from './modelData.ts'

export interface ModelEdits {
  readonly row: number
  /** The index and the encoded value of each changed input. */
  readonly inputs: readonly (readonly [number, number])[]
  /** Member, layer, unit, input of the unit (−1: bias) and value of each changed weight. */
  readonly weights: readonly (readonly [number, number, number, number, number])[]
}

export interface SavedState extends ModelEdits {
  /** Identifies the model. */
  readonly model: string
  readonly member: number
  readonly layer: number
  readonly unit: number
  readonly output: number
  /** The input of the unit that the selected weight multiplies; −1: bias, null: no weight is selected. */
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

/** Checks a state from an untrusted source against the model. An error names the first invalid part. */
export function checkSavedState(value: unknown, userModel: StateBounds): SavedState {
  if (typeof value !== 'object' || value === null) throw new Error('it contains no state of your network')
  const state = value as SavedState
  const { layers, nOut } = userModel.networks[0]
  const linear = (layer: number, to: number, from: number): boolean => {
    const op = within(layer, 0, layers.length) ? layers[layer] : undefined
    return !!op?.linear && within(to, 0, op.nOut) && within(from, op.linear.b ? -1 : 0, op.nIn)
  }
  if (state.model !== userModel.data.mark) throw new Error('it belongs to another model')
  if (!within(state.row, 0, userModel.B)) throw new Error(`its row must be from 0 to ${userModel.B - 1}`)
  if (!within(state.member, 0, userModel.networks.length)) throw new Error(`its member must be from 0 to ${userModel.networks.length - 1}`)
  if (!within(state.output, 0, nOut)) throw new Error(`its output must be from 0 to ${nOut - 1}`)
  if (!within(state.layer, 0, layers.length) || !within(state.unit, 0, layers[state.layer].nOut))
    throw new Error('the model does not have its selected unit')
  if (state.from !== null && !linear(state.layer, state.unit, state.from))
    throw new Error('the model does not have its selected weight')
  if (!Array.isArray(state.inputs) || !state.inputs.every((pair) => Array.isArray(pair) && given(pair, userModel)))
    throw new Error('it changes inputs that the model does not have')
  const known = (one: unknown): boolean =>
    Array.isArray(one) &&
    within(one[0], 0, userModel.networks.length) &&
    linear(one[1] as number, one[2] as number, one[3] as number) &&
    Number.isFinite(one[4])
  if (!Array.isArray(state.weights) || !state.weights.every(known))
    throw new Error('it changes weights that the model does not have')
  return state
}

/** Whether the input exists and the value is a number or, for a category, one of its codes. */
function given([i, value]: readonly unknown[], userModel: StateBounds): boolean {
  if (!within(i, 0, userModel.nIn)) return false
  const { kind, values } = userModel.data.features[i]
  return kind === 'category' ? within(value, 0, values.length + 1) : Number.isFinite(value)
}
