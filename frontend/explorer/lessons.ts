// Lessons as settings: each shows what it names when it is trained, by the numbers and not by a film.
import { DEFAULT_TRAINING, type TrainingSettings } from './snapshot.ts'

export interface NetworkSetup extends TrainingSettings {
  readonly data: string
  readonly activation: string
  readonly hidden: readonly number[]
}

export interface Lesson {
  readonly name: string
  readonly title: string
  /** What to look at. */
  readonly watch: string
  readonly choices: NetworkSetup
}

const usual: NetworkSetup = { ...DEFAULT_TRAINING, data: 'songs', activation: 'tanh', hidden: [8] }

export const LESSONS: readonly Lesson[] = [
  {
    name: 'learn',
    title: 'It learns',
    watch: 'Eight hidden units get all four songs right within a few hundred steps.',
    choices: usual,
  },
  {
    name: 'collapse',
    title: 'Linear collapse',
    watch: 'Without an activation every song ends at the same output, 0.50, whatever the number of layers.',
    choices: { ...usual, activation: 'identity' },
  },
  {
    name: 'zero',
    title: 'Zero initialisation',
    watch:
      'All weights start at 0, so every hidden unit is the same, no blame reaches the first layer, and nothing but the last bias ever moves.',
    choices: { ...usual, scheme: 'zeros' },
  },
  {
    name: 'vanish',
    title: 'Vanishing gradients',
    watch:
      'Six layers of sigmoids: each passes on at most a quarter of the blame. Compare the gradients of the first and the last layer, then switch to ReLU.',
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
      'One far too large step pushes hidden units below 0 for every row. Their slope is 0 there, so they never come back.',
    choices: { ...usual, data: 'xor', activation: 'relu', scheme: 'he', optimiser: 'sgd', rate: 8, batch: 10 },
  },
  {
    name: 'blow',
    title: 'Too large a rate',
    watch:
      'Least squares with a rate beyond what its curvature allows: the loss grows until it is no number, and the page says where.',
    choices: { ...usual, data: 'wave', activation: 'relu', scheme: 'he', optimiser: 'sgd', rate: 2 },
  },
  {
    name: 'spirals',
    title: 'Two spirals',
    watch: 'A hard one for so small a network: three layers of eight units bend the boundary around both arms.',
    choices: { ...usual, data: 'spirals', activation: 'tanh', hidden: [8, 8, 8], rate: 0.02, batch: 32, seed: 3 },
  },
]
