// The display options of the page, except the playground and the user's network. Links store them, so they are plain data
// and are checked when a link is opened.
import { OFFERED } from '../engine/activations.ts'
import { SCHEMES, type Scheme } from '../engine/initialisation.ts'
import { OPTIMISERS, type OptimiserName } from '../engine/optimisers.ts'
import { CURVES, POINTS } from './targetCurve.svelte.ts'
import type { FigureSelection } from './playground.svelte.ts'
import { LESSONS } from './lessons.ts'
import { MAX_RATE } from './snapshot.ts'

export type Depth = 'idea' | 'maths' | 'deep' | 'picture'

export const DEPTHS: Readonly<Record<Depth, string>> = {
  idea: 'Idea',
  maths: 'Maths',
  deep: 'In depth',
  picture: 'Picture only',
}

export const SPEEDS = [1, 2, 10, 50]
export const FIT_ACTIVATIONS = { relu: 'ReLU', sigmoid: 'sigmoid', tanh: 'tanh' } as const

export interface DisplayOptions {
  tab: string
  depth: Depth
  look: FigureSelection
  /** Step of the pass, and the row and column of the table entry whose terms are shown. */
  step: number
  entry: [number, number]
  stepOptimiser: OptimiserName
  stepRate: number
  lesson: string
  /** Training steps per frame. */
  speed: number
  galleryZ: number
  initActivation: string
  initScheme: Scheme
  initLayers: number
  initSeed: number
  fitUnits: number
  fitActivation: keyof typeof FIT_ACTIVATIONS
  /** The name of a curve, or its points. */
  fitCurve: string | number[]
}

export const defaultOptions = (): DisplayOptions => ({
  tab: 'play',
  depth: 'idea',
  look: { row: 0, unit: null, place: null },
  step: 0,
  entry: [0, 0],
  stepOptimiser: 'sgd',
  stepRate: 0.1,
  lesson: '',
  speed: 2,
  galleryZ: 1,
  initActivation: 'tanh',
  initScheme: 'xavier',
  initLayers: 12,
  initSeed: 1,
  fitUnits: 5,
  fitActivation: 'relu',
  fitCurve: 'hills',
})

type Check = (value: unknown) => boolean

const among =
  (names: readonly unknown[]): Check =>
  (value) =>
    names.includes(value)
const number =
  (low: number, high: number, whole = true): Check =>
  (value) =>
    typeof value === 'number' && value >= low && value <= high && (!whole || Number.isInteger(value))
const index = number(0, 1e6)
const object = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null
const list =
  (length: number, of: Check): Check =>
  (value) =>
    Array.isArray(value) && value.length === length && value.every(of)

const CHECKS: Readonly<Record<keyof DisplayOptions, Check>> = {
  tab: (value) => typeof value === 'string',
  depth: among(Object.keys(DEPTHS)),
  look: (value) =>
    object(value) &&
    index(value.row) &&
    (value.unit === null || (object(value.unit) && index(value.unit.layer) && index(value.unit.unit))) &&
    (value.place === null ||
      (object(value.place) && index(value.place.layer) && index(value.place.to) && number(-1, 1e6)(value.place.from))),
  step: index,
  entry: list(2, index),
  stepOptimiser: among(Object.keys(OPTIMISERS)),
  stepRate: number(0, MAX_RATE, false),
  lesson: among(['', ...LESSONS.map((preset) => preset.name)]),
  speed: among(SPEEDS),
  galleryZ: number(-4, 4, false),
  initActivation: among(Object.keys(OFFERED)),
  initScheme: among(Object.keys(SCHEMES)),
  initLayers: number(2, 30),
  initSeed: index,
  fitUnits: number(1, 40),
  fitActivation: among(Object.keys(FIT_ACTIVATIONS)),
  fitCurve: (value) => among(CURVES)(value) || list(POINTS, number(-2, 2, false))(value),
}

/** Checks the options of an untrusted link. Returns those that are present; an error names the first invalid one. */
export function checkDisplayOptions(value: Record<string, unknown>): Partial<DisplayOptions> {
  const names = (Object.keys(CHECKS) as (keyof DisplayOptions)[]).filter((name) => Object.hasOwn(value, name))
  for (const name of names) if (!CHECKS[name](value[name])) throw new Error(`this page cannot show its ${name}`)
  return Object.fromEntries(names.map((name) => [name, value[name]]))
}
