// What an undo step, a link and a file hold of the laboratory: enough to show it again exactly, and nothing derived.
import { OFFERED } from '../engine/activations.ts'
import { DATA } from '../engine/data.ts'
import { LOSSES, type LossName } from '../engine/losses.ts'
import { network, type Network } from '../engine/network.ts'

export const VERSION = 1
export const MAX_WIDTH = 8
export const MAX_HIDDEN = 6

export interface Snapshot {
  readonly version: typeof VERSION
  readonly data: string
  readonly loss: LossName
  readonly activation: string
  readonly widths: readonly number[]
  /** W then b of each layer, row by row. */
  readonly weights: readonly number[]
}

export function taken(net: Network, data: string, loss: LossName, activation: string): Snapshot {
  const weights = net.layers.flatMap((layer) => [...layer.W, ...layer.b])
  const widths = [net.layers[0].nIn, ...net.layers.map((layer) => layer.nOut)]
  return { version: VERSION, data, loss, activation, widths, weights }
}

export function restored(from: Snapshot): Network {
  const net = network(from.widths, from.activation)
  let at = 0
  for (const layer of net.layers)
    for (const part of [layer.W, layer.b]) {
      part.set(from.weights.slice(at, at + part.length))
      at += part.length
    }
  return net
}

/** A snapshot from anyone: whole and within bounds, or an error that says what is not. */
export function checked(value: unknown): Snapshot {
  if (typeof value !== 'object' || value === null) throw new Error('it is not a state of this page')
  const { version, data, loss, activation, widths, weights } = value as Record<string, unknown>
  if (typeof version === 'number' && version > VERSION)
    throw new Error(`it is of version ${version}, and this page reads ${VERSION}: open it with a newer page`)
  if (version !== VERSION) throw new Error('it has no version this page knows')
  if (typeof data !== 'string' || !Object.hasOwn(DATA, data)) throw new Error('it names data this page does not have')
  if (typeof loss !== 'string' || !Object.hasOwn(LOSSES, loss))
    throw new Error('it names a loss this page does not have')
  if (typeof activation !== 'string' || !Object.hasOwn(OFFERED, activation))
    throw new Error('it names an activation this page does not have')
  const nIn = DATA[data]().features.length
  if (!Array.isArray(widths) || widths.length < 2 || widths.length > MAX_HIDDEN + 2)
    throw new Error(`its network must have at most ${MAX_HIDDEN} hidden layers`)
  if (widths[0] !== nIn || widths[widths.length - 1] !== 1)
    throw new Error(`its network must have ${nIn} inputs and 1 output`)
  if (!widths.every((n) => Number.isInteger(n) && n >= 1 && n <= MAX_WIDTH))
    throw new Error(`its layers must have 1 to ${MAX_WIDTH} units`)
  const count = widths.slice(1).reduce((sum: number, n: number, l: number) => sum + n * (widths[l] as number) + n, 0)
  if (!Array.isArray(weights) || weights.length !== count) throw new Error(`it must have ${count} weights`)
  if (!weights.every((w) => typeof w === 'number' && Number.isFinite(w)))
    throw new Error('its weights must be finite numbers')
  return { version: VERSION, data, loss: loss as LossName, activation, widths: [...widths], weights: [...weights] }
}

/** The part of an address after #. */
export function toHash(of: Snapshot, tab: string): string {
  const { version, data, loss, activation, widths, weights } = of
  return `#v${version}=${encodeURIComponent(JSON.stringify({ data, loss, activation, widths, weights, tab }))}`
}

/** A snapshot and the tab from an address; null where the address holds none. */
export function fromHash(hash: string): { snapshot: Snapshot; tab: string } | null {
  const match = /^#v(\d{1,6})=(.*)$/s.exec(hash)
  if (!match) return null
  let value: Record<string, unknown>
  try {
    value = JSON.parse(decodeURIComponent(match[2])) as Record<string, unknown>
  } catch {
    throw new Error('it is cut short or damaged')
  }
  return { snapshot: checked({ ...value, version: Number(match[1]) }), tab: String(value?.tab ?? '') }
}
