// The small data sets of the page: four songs, points of two classes in the plane, and curves of one variable.
import type { LossName } from './losses.ts'
import { Random } from './random.ts'

export interface Dataset {
  readonly name: string
  readonly title: string
  readonly features: readonly string[]
  readonly target: string
  readonly loss: LossName
  /** Outputs of at least this value mean class 1; null if the target is a number. */
  readonly threshold: number | null
  readonly classes: readonly [string, string] | null
  readonly rows: readonly string[]
  readonly x: Float64Array
  readonly y: Float64Array
  /** Half the side of the square (or the interval) that plots show. */
  readonly reach: number
}

/** Tempo and mood from −1 to 1. A song is added where the two disagree: fast but dark, slow but bright. */
const SONGS: readonly [string, number, number, number][] = [
  ['Night Drive', 1, -1, 1],
  ['Paper Boats', -1, 1, 1],
  ['Confetti', 1, 1, 0],
  ['Grey Harbour', -1, -1, 0],
]

function songs(): Dataset {
  return {
    name: 'songs',
    title: 'Songs',
    features: ['tempo', 'mood'],
    target: 'add',
    loss: 'mse',
    threshold: 0.5,
    classes: ['skip', 'add'],
    rows: SONGS.map(([title]) => title),
    x: Float64Array.from(SONGS.flatMap(([, tempo, mood]) => [tempo, mood])),
    y: Float64Array.from(SONGS.map(([, , , add]) => add)),
    reach: 1.6,
  }
}

type Point = readonly [number, number, number]

function plane(name: string, title: string, reach: number, points: readonly Point[]): Dataset {
  return {
    name,
    title,
    features: ['x₁', 'x₂'],
    target: 'class',
    loss: 'binary_cross_entropy',
    threshold: 0,
    classes: ['orange', 'blue'],
    rows: points.map((_, i) => `point ${i + 1}`),
    x: Float64Array.from(points.flatMap(([u, v]) => [u, v])),
    y: Float64Array.from(points.map(([, , c]) => c)),
    reach,
  }
}

function drawn(n: number, seed: number, one: (random: Random, i: number) => Point): Point[] {
  const random = new Random(seed)
  return Array.from({ length: n }, (_, i) => one(random, i))
}

const xor = (): Dataset =>
  plane(
    'xor',
    'XOR',
    1.6,
    drawn(120, 1, (r, i) => {
      const [u, v] = [i & 1 ? 1 : -1, i & 2 ? 1 : -1]
      return [u * 0.75 + 0.28 * r.normal(), v * 0.75 + 0.28 * r.normal(), u * v < 0 ? 1 : 0]
    }),
  )

const circles = (): Dataset =>
  plane(
    'circles',
    'Circles',
    1.6,
    drawn(120, 2, (r, i) => {
      const inner = i % 2
      const [radius, angle] = [(inner ? 0.45 : 1.15) + 0.1 * r.normal(), 2 * Math.PI * r.uniform()]
      return [radius * Math.cos(angle), radius * Math.sin(angle), inner]
    }),
  )

const moons = (): Dataset =>
  plane(
    'moons',
    'Moons',
    1.9,
    drawn(120, 3, (r, i) => {
      const upper = i % 2
      const angle = Math.PI * r.uniform()
      const [u, v] = upper
        ? [Math.cos(angle) - 0.5, Math.sin(angle) - 0.25]
        : [0.5 - Math.cos(angle), 0.25 - Math.sin(angle)]
      return [u + 0.1 * r.normal(), v + 0.1 * r.normal(), upper]
    }),
  )

const spirals = (): Dataset =>
  plane(
    'spirals',
    'Spirals',
    1.6,
    drawn(160, 4, (r, i) => {
      const arm = i % 2
      const t = Math.sqrt(r.uniform()) * 2.6 * Math.PI
      const angle = t + Math.PI * arm
      const radius = (1.35 * t) / (2.6 * Math.PI)
      return [radius * Math.cos(angle) + 0.04 * r.normal(), radius * Math.sin(angle) + 0.04 * r.normal(), arm]
    }),
  )

export function curveDataset(name: string, title: string, f: (x: number) => number, n = 48): Dataset {
  const x = Float64Array.from({ length: n }, (_, i) => -2 + (4 * i) / (n - 1))
  return {
    name,
    title,
    features: ['x'],
    target: 'y',
    loss: 'mse',
    threshold: null,
    classes: null,
    rows: Array.from(x, (_, i) => `point ${i + 1}`),
    x,
    y: x.map(f),
    reach: 2,
  }
}

export const DATASETS: Readonly<Record<string, () => Dataset>> = {
  songs,
  xor,
  circles,
  moons,
  spirals,
  wave: () => curveDataset('wave', 'Wave (1-D)', (x) => Math.sin(2 * x)),
  bump: () => curveDataset('bump', 'Bump (1-D)', (x) => 1.6 * Math.exp(-4 * x * x) - 0.6),
  steps: () => curveDataset('steps', 'Steps (1-D)', (x) => (x < -0.8 ? -0.7 : x < 0.6 ? 0.7 : -0.2)),
}

/** Number of rows on the correct side of the threshold. */
export function countCorrect(data: Dataset, out: Float64Array): number {
  if (data.threshold === null) return NaN
  let n = 0
  for (let r = 0; r < data.y.length; r++) n += Number(out[r] >= data.threshold) === data.y[r] ? 1 : 0
  return n
}
