// Describes in words how the size of a signal or gradient changes with the depth of a network.
import { scientific, significant } from '../shared/format.ts'

/** Describes the change of a mean square over the depth. A factor of at most 10 counts as steady, as in Python. */
export function signalChange(ratio: number): string {
  if (ratio === 0) return 'vanishes completely'
  if (ratio > 1000 || Number.isNaN(ratio)) return `explodes: it grows by a factor of ${scientific(ratio)}`
  if (ratio < 1 / 1000) return `vanishes: it shrinks by a factor of ${scientific(1 / ratio)}`
  if (ratio > 10) return `grows by a factor of ${significant(ratio, 2)}`
  if (ratio < 1 / 10) return `shrinks by a factor of ${significant(1 / ratio, 2)}`
  return 'stays steady'
}
