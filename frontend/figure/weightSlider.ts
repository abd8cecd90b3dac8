// A drag slider that changes one weight or bias of a network, used by edges and by the biases of units.
import type { WeightIndex } from '../engine/network.ts'
import { dragSlider } from './dragSlider.ts'
import type { NetworkModel } from './networkModel.ts'

export interface SliderWeight {
  readonly model: NetworkModel
  readonly weight: WeightIndex
  /** Called on a click without a drag, or when a number is typed; `typed` is its first key. */
  readonly onopen: (weight: WeightIndex, typed?: string) => void
  /** Called with the value before the drag when a drag begins, and with null when it ends. */
  readonly onhold: (before: number | null) => void
}

export const weightSlider = (of: () => SliderWeight): ReturnType<typeof dragSlider> =>
  dragSlider(() => {
    const { model, weight, onopen, onhold } = of()
    const value = model.getWeight(weight)
    return {
      get: () => value,
      put: (v) => model.moveWeight(weight, v),
      keep: () => model.commit(),
      open: (typed) => onopen(weight, typed),
      hold: (held) => {
        onhold(held ? value : null)
        model.dragging = held
      },
    }
  })
