// Two 2-3-1 networks: the start of the playground, with three of the four songs correct, and one with all four correct.
import { DEFAULT_TRAINING, VERSION, type Snapshot } from './snapshot.ts'

const songs = (weights: readonly number[]): Snapshot => ({
  version: VERSION,
  data: 'songs',
  loss: 'mse',
  activation: 'tanh',
  widths: [2, 3, 1],
  weights,
  training: DEFAULT_TRAINING,
  course: null,
})

/** h₁ is active for songs that are fast or bright, h₂ for those that are both. The output's weight for h₂ is too small. */
export const THREE_RIGHT = songs([1.2, 1.2, 1.1, 1.3, 0.4, -0.6, 1, -1.2, 0.2, 0.6, -0.2, 0.1, 0.2])

/** The same with a larger negative weight for h₂, so that songs that are both fast and bright are skipped. */
export const ALL_RIGHT = songs([1.2, 1.2, 1.1, 1.3, 0.4, -0.6, 1, -1.2, 0.2, 0.6, -0.7, 0.1, 0])
