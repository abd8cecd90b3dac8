// Where the figure starts: a 2-3-1 network that has three of the four songs right, and one that has all four.
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

/** h₁ wakes for fast or bright songs, h₂ for fast and bright ones; the output holds h₂ too little against a song. */
export const THREE_RIGHT = songs([1.2, 1.2, 1.1, 1.3, 0.4, -0.6, 1, -1.2, 0.2, 0.6, -0.2, 0.1, 0.2])

/** The same, with the last step made: fast and bright together counts against a song. */
export const ALL_RIGHT = songs([1.2, 1.2, 1.1, 1.3, 0.4, -0.6, 1, -1.2, 0.2, 0.6, -0.7, 0.1, 0])
