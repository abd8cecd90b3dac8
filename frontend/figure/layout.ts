// Positions of units, edges and their numbers in pixels, for a network of given widths in a box of given width.
export interface Point {
  readonly x: number
  readonly y: number
}

export interface Layout {
  readonly width: number
  readonly height: number
  readonly radius: number
  /** Units by column; column 0 is the inputs. */
  readonly columns: readonly (readonly Point[])[]
  /** Whether there is room for a number on every edge. */
  readonly numbers: boolean
}

export function layout(widths: readonly number[], width: number): Layout {
  const narrow = width < 520
  const most = Math.max(...widths)
  const between = (width - (narrow ? 64 : 140)) / (widths.length - 1)
  // The name above a unit and the bias below it must not overlap those of its neighbors.
  const radius = Math.max(11, Math.min(most > 6 ? 17 : most > 4 ? 19 : narrow ? 20 : 24, between * 0.3))
  const spacing = most > 6 ? 54 : most > 4 ? 78 : narrow ? 98 : 126
  const height = Math.max(narrow ? 300 : 404, most * spacing + 36)
  const side = radius + (narrow ? 12 : 46)
  const columns = widths.map((n, c) => {
    const x = side + ((width - 2 * side) * c) / (widths.length - 1)
    // Inputs have more space between them, so that their edges spread and leave room for numbers.
    const step = c === 0 ? Math.min(height / (n + 0.3), Math.max(170, spacing * 1.6)) : Math.min(height / n, spacing)
    return Array.from({ length: n }, (_, u) => ({ x, y: height / 2 + (u - (n - 1) / 2) * step - 4 }))
  })
  const gap = (width - 2 * side) / (widths.length - 1) - 2 * radius
  return { width, height, radius, columns, numbers: most <= 4 && gap >= 74 }
}

/** The ends of an edge, on the circles of its units. */
export function edgeEnds(from: Point, to: Point, radius: number): readonly [Point, Point] {
  const length = Math.hypot(to.x - from.x, to.y - from.y)
  const [u, v] = [(to.x - from.x) / length, (to.y - from.y) / length]
  return [
    { x: from.x + u * radius, y: from.y + v * radius },
    { x: to.x - u * radius, y: to.y - v * radius },
  ]
}

/** The position of an edge's number: near the layer with more units, where the edges are further apart. */
export function edgeLabelPosition(from: Point, to: Point, nFrom: number, nTo: number): Point {
  const near = to.x - from.x < 200 ? 0.3 : 0.22
  const t = nTo >= nFrom ? 1 - near : near + 0.08
  return { x: from.x + t * (to.x - from.x), y: from.y + t * (to.y - from.y) }
}

/** The width of an edge. It grows with the weight and saturates, so that the scale does not change during a drag. */
export const edgeWidth = (weight: number): number => 1 + 4.5 * (Math.tanh(Math.abs(weight) / 2) || 0)
