// The laboratory: one small network, one data set, and what is selected. Everything shown is derived from these, so
// every edit brings all of it up to date in the same frame.
import { activation as functionOf } from '../engine/activations.ts'
import { collapsed } from '../engine/linearCollapse.ts'
import { correct, DATA, type Dataset } from '../engine/datasets.ts'
import { initialise } from '../engine/initialisation.ts'
import type { LossName } from '../engine/losses.ts'
import { clone, network, pass, type Network, type Trace, type UnitIndex, type WeightIndex } from '../engine/network.ts'
import { copied, update, type OptimiserName } from '../engine/optimisers.ts'
import { health, notFinite, Trainer, type Failure } from '../engine/trainer.ts'
import type { NetworkModel } from '../figure/networkModel.ts'
import { fixed } from '../shared/format.ts'
import { History } from './undoHistory.svelte.ts'
import type { Choices } from './lessons.ts'
import {
  checked,
  courseOf,
  restored,
  resume,
  taken,
  USUAL,
  type Point,
  type Snapshot,
  type Training,
} from './snapshot.ts'
import { FIRST } from './songNetworks.ts'

export interface Look {
  readonly row: number
  readonly unit: UnitIndex | null
  readonly place: WeightIndex | null
}

const KEPT = 600

/** Every other point once there are many: the curve keeps its shape and the page its speed. */
const thinned = (points: readonly Point[]): readonly Point[] =>
  points.length <= KEPT ? points : points.filter((_, k) => k % 2 === 0 || k === points.length - 1)

export class Lab implements NetworkModel {
  data = $state.raw<Dataset>(DATA.songs())
  net = $state.raw<Network>(restored(FIRST))
  loss = $state<LossName>('mse')
  activation = $state('tanh')
  /** How it is trained. */
  settings = $state.raw<Training>(USUAL)
  /** The row whose numbers the figure shows. */
  row = $state(0)
  /** The row under the pointer, shown until it leaves. */
  preview = $state<number | null>(null)
  unit = $state.raw<UnitIndex | null>(null)
  place = $state.raw<WeightIndex | null>(null)
  /** What the pointer or the focus is on. */
  near = $state.raw<WeightIndex | null>(null)
  dragging = $state(false)
  training = $state(false)
  /** Pauses the training that goes on. */
  stop: (() => void) | null = null
  said = $state('')
  /** Counts changes of numbers inside `net`, which itself stays the same object. */
  private version = $state(0)
  private readonly history = new History<Snapshot>(FIRST)
  /** What training is beside the weights: the optimiser's memory, the order of rows, the steps so far. */
  private trainer = new Trainer(this.net, this.data, this.loss, this.settings)
  private curve = $state.raw<readonly Point[]>([])

  readonly trace: Trace = $derived.by(() => {
    void this.version
    return pass(this.net, this.data.x, this.data.y, this.loss)
  })
  readonly outputs: Float64Array = $derived(this.trace.layers[this.trace.layers.length - 1].a)
  readonly right: number = $derived(correct(this.data, this.outputs))
  readonly whole = $derived.by(() => {
    void this.version
    return this.net.layers.length > 1 ? collapsed(this.net) : null
  })
  readonly health = $derived(
    health(
      this.net,
      this.trace,
      this.net.layers.map((layer) => functionOf(layer.activation).df),
    ),
  )
  readonly broken = $derived(notFinite(this.trace))

  /** The row that figures show. */
  get shown(): number {
    return this.preview ?? this.row
  }

  /** Chooses a row, and looks inside the output where nothing is looked into yet. */
  pick(row: number): void {
    this.row = row
    this.preview = null
    this.unit ??= { layer: this.net.layers.length - 1, unit: 0 }
  }

  /** What is looked at, for a link. */
  get look(): Look {
    return { row: this.row, unit: this.unit, place: this.place }
  }

  set look({ row, unit, place }: Look) {
    if (row < this.data.y.length) this.row = row
    this.unit = unit && this.exists({ layer: unit.layer, to: unit.unit, from: -1 }) ? unit : null
    this.place = place && this.exists(place) ? place : null
  }

  get stamp(): number {
    return this.version
  }

  get widths(): number[] {
    return [this.net.layers[0].nIn, ...this.net.layers.map((layer) => layer.nOut)]
  }

  // Names

  /** What a unit is called: a feature, h₁ … (h2.1 … where there are several hidden layers), or the target. Layer −1 is the inputs. */
  nameOf(layer: number, unit: number): string {
    if (layer < 0) return this.data.features[unit]
    if (layer === this.net.layers.length - 1) return this.data.target
    const low = (n: number): string => [...String(n)].map((c) => '₀₁₂₃₄₅₆₇₈₉'[Number(c)]).join('')
    return this.net.layers.length > 2 ? `h${layer + 1}.${unit + 1}` : `h${low(unit + 1)}`
  }

  nameOfPlace(p: WeightIndex): string {
    const to = this.nameOf(p.layer, p.to)
    return p.from < 0 ? `bias of ${to}` : `${this.nameOf(p.layer - 1, p.from)} → ${to}`
  }

  // Weights

  get(p: WeightIndex): number {
    void this.version
    const layer = this.net.layers[p.layer]
    return p.from < 0 ? layer.b[p.to] : layer.W[p.to * layer.nIn + p.from]
  }

  gradient(p: WeightIndex): number {
    const t = this.trace.layers[p.layer]
    return p.from < 0 ? t.db[p.to] : t.dW[p.to * this.net.layers[p.layer].nIn + p.from]
  }

  /** Changes one number at once, without an entry in the history: the middle of a drag. */
  put(p: WeightIndex, value: number): void {
    const before = this.decisions()
    const layer = this.net.layers[p.layer]
    if (p.from < 0) layer.b[p.to] = value
    else layer.W[p.to * layer.nIn + p.from] = value
    this.changed()
    this.tell(before, `${this.nameOfPlace(p)} ${fixed(value)}`)
  }

  /** A finished change of one number. */
  set(p: WeightIndex, value: number): void {
    this.put(p, value)
    this.keep()
  }

  changed(): void {
    this.version++
  }

  /** Ends a change: an entry in the history, if there was one. */
  keep(): void {
    const now = this.snapshot()
    if (JSON.stringify(now) !== JSON.stringify(this.history.current)) this.history.push(now)
  }

  // The whole

  private get kind(): Omit<Snapshot, 'version' | 'widths' | 'weights' | 'course'> {
    return { data: this.data.name, loss: this.loss, activation: this.activation, training: this.settings }
  }

  snapshot(): Snapshot {
    return taken(this.net, { ...this.kind, course: courseOf(this.trainer, this.curve) })
  }

  show(from: Snapshot): void {
    const before = this.decisions()
    if (from.data !== this.data.name) this.data = DATA[from.data]()
    this.net = restored(from)
    this.loss = from.loss
    this.activation = from.activation
    this.settings = from.training
    this.trainer = new Trainer(this.net, this.data, this.loss, this.settings)
    if (from.course) resume(this.trainer, from.course)
    this.curve = from.course?.curve ?? []
    this.row = Math.min(this.row, this.data.y.length - 1)
    this.preview = null
    if (this.unit && !this.exists({ layer: this.unit.layer, to: this.unit.unit, from: -1 })) this.unit = null
    if (this.place && !this.exists(this.place)) this.place = null
    this.changed()
    this.tell(before, '')
  }

  private exists(p: WeightIndex): boolean {
    const layer = this.net.layers[p.layer]
    return layer !== undefined && p.to < layer.nOut && p.from < layer.nIn
  }

  load(value: unknown): void {
    const found = checked(value)
    this.settle()
    this.show(found)
    this.keep()
  }

  /** Ends training that goes on, as an entry of its own, before something else is shown. */
  private settle(): void {
    this.stop?.()
  }

  get canUndo(): boolean {
    return this.history.canUndo
  }

  get canRedo(): boolean {
    return this.history.canRedo
  }

  undo(): void {
    this.settle()
    const found = this.history.undo()
    if (found) this.show(found)
  }

  redo(): void {
    this.settle()
    const found = this.history.redo()
    if (found) this.show(found)
  }

  setActivation(name: string): void {
    this.settle()
    this.show({ ...this.snapshot(), activation: name, course: null })
    this.keep()
  }

  /** Other widths between inputs and output: what both networks have stays, what is new is drawn. */
  setHidden(hidden: readonly number[]): void {
    this.settle()
    const next = network([this.data.features.length, ...hidden, 1], this.activation)
    initialise(next, 'xavier', 1)
    // New numbers are shown with two decimals, so they have two.
    next.layers.forEach((layer) => layer.W.forEach((w, k) => (layer.W[k] = Math.round(w * 100) / 100)))
    if (next.layers.length === this.net.layers.length)
      next.layers.forEach((layer, l) => {
        const old = this.net.layers[l]
        for (let o = 0; o < Math.min(layer.nOut, old.nOut); o++) {
          layer.b[o] = old.b[o]
          for (let i = 0; i < Math.min(layer.nIn, old.nIn); i++) layer.W[o * layer.nIn + i] = old.W[o * old.nIn + i]
        }
      })
    this.show(taken(next, { ...this.kind, course: null }))
    this.keep()
  }

  /** Other settings, without new weights. */
  change(part: Partial<Training>): void {
    this.settings = { ...this.settings, ...part }
    this.trainer.failure = null // it may go on with these
    this.changed()
    this.keep()
  }

  /** Weights drawn anew, for what is chosen and else for what is there. */
  start(chosen: Partial<Choices> = {}): void {
    this.settle()
    const { data: name, activation, hidden, ...training } = { ...this.settings, ...this.shape, ...chosen }
    const data = DATA[name]()
    const net = network([data.features.length, ...hidden, 1], activation)
    initialise(net, training.scheme, training.seed, data.features.length === 1 ? 1 : 0)
    this.row = 0
    this.show(taken(net, { data: name, loss: data.loss, activation, training, course: null }))
    this.keep()
  }

  private get shape(): Pick<Choices, 'data' | 'activation' | 'hidden'> {
    return { data: this.data.name, activation: this.activation, hidden: this.widths.slice(1, -1) }
  }

  // Training

  get step(): number {
    void this.version
    return this.trainer.step
  }

  get failure(): Failure | null {
    void this.version
    return this.trainer.failure
  }

  /** So many steps of training, or as many as leave every number finite. */
  advance(steps: number): void {
    this.trainer.settings = this.settings
    this.stepped(() => {
      for (let k = 0; k < steps && this.trainer.advance(); k++);
    })
  }

  /** One step on all rows with an optimiser and a rate of one's own; none where it would leave its senses. */
  take(name: OptimiserName, rate: number): void {
    this.stepped(() => {
      this.trainer.move(this.trace, name, rate)
    })
    this.keep()
  }

  /** The network after such a step, without taking it. */
  after(name: OptimiserName, rate: number): Network {
    void this.version
    const net = clone(this.net)
    update(net, this.trace, copied(this.trainer.memory), name, rate)
    return net
  }

  /** The loss by step, also before the first. */
  get losses(): readonly Point[] {
    return this.curve.length ? this.curve : [[this.step, this.trace.loss]]
  }

  private stepped(take: () => void): void {
    const { step, losses } = this
    take()
    this.changed()
    if (this.step > step) this.curve = thinned([...losses, [this.step, this.trace.loss]])
  }

  // What is said aloud

  /** How it stands: rows that are right, or the loss. */
  get standing(): string {
    return this.data.classes ? `${this.right} of ${this.data.y.length} right` : `loss ${fixed(this.trace.loss, 3)}`
  }

  decision(r: number): number {
    return Number(this.outputs[r] >= (this.data.threshold ?? 0))
  }

  private decisions(): { rows: number[]; right: number } {
    return { rows: this.data.classes ? Array.from(this.outputs, (_, r) => this.decision(r)) : [], right: this.right }
  }

  /** Flips of predictions, for the live region; nothing where none flipped. */
  private tell(before: { rows: number[]; right: number }, what: string): void {
    const { classes, rows, y } = this.data
    if (this.broken) return void (this.said = `Not a number: ${this.broken.what} of layer ${this.broken.layer}.`)
    if (!classes || before.rows.length !== y.length || y.length > 12) return
    const flips = before.rows.flatMap((old, r) =>
      old !== this.decision(r) ? [`${rows[r]} is now ${classes[this.decision(r)]}`] : [],
    )
    if (flips.length) this.said = `${what ? `${what}: ` : ''}${flips.join(', ')}. ${this.right} of ${y.length} right.`
  }
}
