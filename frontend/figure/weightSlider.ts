// A drag slider that moves one weight or bias of a network: what an edge and the bias of a unit have in common.
import type { WeightIndex } from '../engine/network.ts'
import { dragSlider } from './dragSlider.ts'
import type { NetworkModel } from './networkModel.ts'

export interface SliderWeight {
  readonly model: NetworkModel
  readonly weight: WeightIndex
  /** It was clicked, not moved; `typed` is the first key of a number. */
  readonly onopen: (weight: WeightIndex, typed?: string) => void
  /** The value before a drag, when one begins; null when it ends. */
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
