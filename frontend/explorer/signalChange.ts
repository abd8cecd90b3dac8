// Describes in words how the size of a signal or gradient changes with the depth of a network.
import { scientific, significant } from '../shared/format.ts'

/** How much a mean square changes over the depth, in words; at most a factor of 10 counts as steady, as in Python. */
export function signalChange(ratio: number): string {
  if (ratio === 0) return 'vanishes completely'
  if (ratio > 1000 || Number.isNaN(ratio)) return `explodes: it grows ${scientific(ratio)} times`
  if (ratio < 1 / 1000) return `vanishes: it shrinks to ${scientific(ratio)} of it`
  if (ratio > 10) return `grows ${significant(ratio, 2)} times`
  if (ratio < 1 / 10) return `shrinks to 1/${significant(1 / ratio, 2)} of it`
  return 'stays steady'
}
