// The output of a network over the plane: values on a grid, and the contour at a threshold.
import { forward, emptyTrace, type Network, type Trace } from '../engine/network.ts'

export class OutputGrid {
  readonly values: Float64Array
  private readonly points: Float64Array
  private buffers: Trace | null = null
  private shape = ''

  /** n × n points over [−reach, reach]², rows from the top. */
  constructor(
    readonly n: number,
    readonly reach: number,
  ) {
    this.points = new Float64Array(2 * n * n)
    this.values = new Float64Array(n * n)
    for (let r = 0; r < n; r++)
      for (let c = 0; c < n; c++) {
        this.points[2 * (r * n + c)] = -reach + (2 * reach * (c + 0.5)) / n
        this.points[2 * (r * n + c) + 1] = reach - (2 * reach * (r + 0.5)) / n
      }
  }

  /** Runs the network over the grid and returns the values of all units. */
  run(net: Network): Trace {
    const shape = net.layers.map((layer) => `${layer.nIn}-${layer.nOut}`).join()
    if (!this.buffers || shape !== this.shape) this.buffers = emptyTrace(net, this.n * this.n)
    this.shape = shape
    this.values.set(forward(net, this.points, this.buffers))
    return this.buffers
  }
}

/** Line segments where values on an n × n grid cross the level, in units of cells: marching squares. */
export function contour(values: Float64Array, n: number, level: number): number[][] {
  const lines: number[][] = []
  const cut = (a: number, b: number): number => (level - a) / (b - a)
  for (let r = 0; r < n - 1; r++)
    for (let c = 0; c < n - 1; c++) {
      const p = values[r * n + c]
      const q = values[r * n + c + 1]
      const s = values[(r + 1) * n + c + 1]
      const t = values[(r + 1) * n + c]
      const above = Number(p < level) + Number(q < level) + Number(s < level) + Number(t < level)
      if (above === 0 || above === 4) continue // most cells
      const crossings: number[][] = []
      if (p < level !== q < level) crossings.push([c + cut(p, q), r])
      if (q < level !== s < level) crossings.push([c + 1, r + cut(q, s)])
      if (s < level !== t < level) crossings.push([c + cut(t, s), r + 1])
      if (t < level !== p < level) crossings.push([c, r + cut(p, t)])
      for (let k = 0; k + 1 < crossings.length; k += 2) lines.push([...crossings[k], ...crossings[k + 1]])
    }
  return lines
}

export type Rgb = readonly [number, number, number]

/** Parses a color of the theme. The build may have shortened #rrggbb to #rgb. */
export function parseColor(color: string): Rgb {
  const digits = color.trim().slice(1)
  const n = parseInt(digits.length === 3 ? [...digits].map((d) => d + d).join('') : digits, 16)
  return [n >> 16, (n >> 8) & 255, n & 255]
}

/**
 * Mixes two colors with the background, depending on the distance of each value from the level. `span` is the scale of the
 * distance. `floor` is the share of color at the level itself, which makes its two sides distinguishable.
 */
export function paintPixels(
  into: Uint8ClampedArray,
  values: ArrayLike<number>,
  level: number,
  span: number,
  colors: { high: Rgb; low: Rgb; ground: Rgb },
  { stride = 1, offset = 0, floor = 0.28 } = {},
): void {
  const { high, low, ground } = colors
  const count = into.length / 4
  for (let k = 0; k < count; k++) {
    const away = (values[k * stride + offset] - level) / span
    const color = away >= 0 ? high : low
    const share = Number.isFinite(away) ? floor + (1 - floor) * Math.tanh(Math.abs(away)) : 0
    for (let c = 0; c < 3; c++) into[4 * k + c] = ground[c] + (color[c] - ground[c]) * share
    into[4 * k + 3] = 255
  }
}
