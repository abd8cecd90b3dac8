// Lessons: settings of a network that show one effect when the network is trained.
import { DEFAULT_TRAINING, type TrainingSettings } from './snapshot.ts'

export interface NetworkSetup extends TrainingSettings {
  readonly data: string
  readonly activation: string
  readonly hidden: readonly number[]
}

export interface Lesson {
  readonly name: string
  readonly title: string
  /** The text of the lesson: what to look at. */
  readonly watch: string
  readonly choices: NetworkSetup
}

const usual: NetworkSetup = { ...DEFAULT_TRAINING, data: 'songs', activation: 'tanh', hidden: [8] }

export const LESSONS: readonly Lesson[] = [
  {
    name: 'learn',
    title: 'It learns',
    watch: 'With eight hidden units, the network classifies all four songs correctly within a few hundred steps.',
    choices: usual,
  },
  {
    name: 'collapse',
    title: 'Linear collapse',
    watch: 'Without an activation, every song ends at the same output, 0.50, for any number of layers.',
    choices: { ...usual, activation: 'identity' },
  },
  {
    name: 'zero',
    title: 'Zero initialization',
    watch:
      'All weights start at 0. All hidden units are then the same, the gradient of the first layer is 0, and only the last bias ever changes.',
    choices: { ...usual, scheme: 'zeros' },
  },
  {
    name: 'vanish',
    title: 'Vanishing gradients',
    watch:
      'Six sigmoid layers. The slope of a sigmoid is at most 0.25, so the gradient shrinks in every layer on its way back. Compare the gradients of the first and the last layer, then switch to ReLU.',
    choices: {
      ...usual,
      data: 'circles',
      activation: 'sigmoid',
      hidden: [6, 6, 6, 6, 6, 6],
      optimiser: 'sgd',
      rate: 0.5,
      batch: 20,
    },
  },
  {
    name: 'dead',
    title: 'Dead ReLUs',
    watch:
      'One step that is far too large makes the input of some hidden units negative for every row. The slope of ReLU is 0 there, so these units never recover.',
    choices: { ...usual, data: 'xor', activation: 'relu', scheme: 'he', optimiser: 'sgd', rate: 8, batch: 10 },
  },
  {
    name: 'blow',
    title: 'Learning rate too large',
    watch:
      'Regression with a learning rate that is too large for the curvature of the loss. The loss grows until it is no longer finite. The page then shows the step and the layer.',
    choices: { ...usual, data: 'wave', activation: 'relu', scheme: 'he', optimiser: 'sgd', rate: 2 },
  },
  {
    name: 'spirals',
    title: 'Two spirals',
    watch: 'A hard task for a small network: with three layers of eight units, the boundary follows both arms of the spiral.',
    choices: { ...usual, data: 'spirals', activation: 'tanh', hidden: [8, 8, 8], rate: 0.02, batch: 32, seed: 3 },
  },
]
