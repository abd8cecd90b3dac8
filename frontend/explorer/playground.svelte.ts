// The playground: one small network, one data set, and what is selected. Everything shown is derived from these, so
// every edit brings all of it up to date in the same frame.
import { activation as functionOf } from '../engine/activations.ts'
import { collapseLinear } from '../engine/linearCollapse.ts'
import { countCorrect, DATASETS, type Dataset } from '../engine/datasets.ts'
import { initialise } from '../engine/initialisation.ts'
import type { LossName } from '../engine/losses.ts'
import { clone, zeroNetwork, forwardBackward, type Network, type Trace, type UnitIndex, type WeightIndex } from '../engine/network.ts'
import { copyOptimiserState, optimiserStep, type OptimiserName } from '../engine/optimisers.ts'
import { unitHealth, firstNonFinite, Trainer, type Failure } from '../engine/trainer.ts'
import type { NetworkModel } from '../figure/networkModel.ts'
import { fixed } from '../shared/format.ts'
import { subscript } from '../shared/text.ts'
import { UndoHistory } from './undoHistory.svelte.ts'
import type { NetworkSetup } from './lessons.ts'
import {
  checkSnapshot,
  trainingStateOf,
  restoreNetwork,
  restoreTraining,
  takeSnapshot,
  DEFAULT_TRAINING,
  type LossPoint,
  type Snapshot,
  type TrainingSettings,
} from './snapshot.ts'
import { THREE_RIGHT } from './songNetworks.ts'

export interface FigureSelection {
  readonly row: number
  readonly unit: UnitIndex | null
  readonly place: WeightIndex | null
}

const KEPT = 600

/** Every other point once there are many: the curve keeps its shape and the page its speed. */
const thinned = (points: readonly LossPoint[]): readonly LossPoint[] =>
  points.length <= KEPT ? points : points.filter((_, k) => k % 2 === 0 || k === points.length - 1)

export class Playground implements NetworkModel {
  data = $state.raw<Dataset>(DATASETS.songs())
  net = $state.raw<Network>(restoreNetwork(THREE_RIGHT))
  loss = $state<LossName>('mse')
  activation = $state('tanh')
  /** How it is trained. */
  settings = $state.raw<TrainingSettings>(DEFAULT_TRAINING)
  /** The row whose numbers the figure shows. */
  selectedRow = $state(0)
  /** The row under the pointer, shown until it leaves. */
  hoveredRow = $state<number | null>(null)
  selectedUnit = $state.raw<UnitIndex | null>(null)
  selectedWeight = $state.raw<WeightIndex | null>(null)
  /** What the pointer or the focus is on. */
  hoveredWeight = $state.raw<WeightIndex | null>(null)
  dragging = $state(false)
  training = $state(false)
  /** Pauses the training that goes on. */
  stopTraining: (() => void) | null = null
  announcement = $state('')
  /** Counts changes of numbers inside `net`, which itself stays the same object. */
  private version = $state(0)
  private readonly history = new UndoHistory<Snapshot>(THREE_RIGHT)
  /** What training is beside the weights: the optimiser's memory, the order of rows, the steps so far. */
  private trainer = new Trainer(this.net, this.data, this.loss, this.settings)
  private curve = $state.raw<readonly LossPoint[]>([])

  readonly trace: Trace = $derived.by(() => {
    void this.version
    return forwardBackward(this.net, this.data.x, this.data.y, this.loss)
  })
  readonly outputs: Float64Array = $derived(this.trace.layers[this.trace.layers.length - 1].a)
  readonly correctCount: number = $derived(countCorrect(this.data, this.outputs))
  readonly collapsedLayer = $derived.by(() => {
    void this.version
    return this.net.layers.length > 1 ? collapseLinear(this.net) : null
  })
  readonly health = $derived(
    unitHealth(
      this.net,
      this.trace,
      this.net.layers.map((layer) => functionOf(layer.activation).df),
    ),
  )
  readonly nonFinite = $derived(firstNonFinite(this.trace))

  /** The row that figures show. */
  get shownRow(): number {
    return this.hoveredRow ?? this.selectedRow
  }

  /** Chooses a row, and looks inside the output where nothing is looked into yet. */
  selectRow(row: number): void {
    this.selectedRow = row
    this.hoveredRow = null
    this.selectedUnit ??= { layer: this.net.layers.length - 1, unit: 0 }
  }

  /** What is looked at, for a link. */
  get selection(): FigureSelection {
    return { row: this.selectedRow, unit: this.selectedUnit, place: this.selectedWeight }
  }

  set selection({ row, unit, place }: FigureSelection) {
    if (row < this.data.y.length) this.selectedRow = row
    this.selectedUnit = unit && this.exists({ layer: unit.layer, to: unit.unit, from: -1 }) ? unit : null
    this.selectedWeight = place && this.exists(place) ? place : null
  }

  get weightsVersion(): number {
    return this.version
  }

  get widths(): number[] {
    return [this.net.layers[0].nIn, ...this.net.layers.map((layer) => layer.nOut)]
  }

  // Names

  /** What a unit is called: a feature, h₁ … (h2.1 … where there are several hidden layers), or the target. Layer −1 is the inputs. */
  unitName(layer: number, unit: number): string {
    if (layer < 0) return this.data.features[unit]
    if (layer === this.net.layers.length - 1) return this.data.target
    return this.net.layers.length > 2 ? `h${layer + 1}.${unit + 1}` : `h${subscript(unit + 1)}`
  }

  weightName(p: WeightIndex): string {
    const to = this.unitName(p.layer, p.to)
    return p.from < 0 ? `bias of ${to}` : `${this.unitName(p.layer - 1, p.from)} → ${to}`
  }

  // Weights

  getWeight(p: WeightIndex): number {
    void this.version
    const layer = this.net.layers[p.layer]
    return p.from < 0 ? layer.b[p.to] : layer.W[p.to * layer.nIn + p.from]
  }

  gradient(p: WeightIndex): number {
    const t = this.trace.layers[p.layer]
    return p.from < 0 ? t.db[p.to] : t.dW[p.to * this.net.layers[p.layer].nIn + p.from]
  }

  /** Changes one number at once, without an entry in the history: the middle of a drag. */
  moveWeight(p: WeightIndex, value: number): void {
    const before = this.predictedClasses()
    const layer = this.net.layers[p.layer]
    if (p.from < 0) layer.b[p.to] = value
    else layer.W[p.to * layer.nIn + p.from] = value
    this.changed()
    this.announceFlips(before, `${this.weightName(p)} ${fixed(value)}`)
  }

  /** A finished change of one number. */
  setWeight(p: WeightIndex, value: number): void {
    this.moveWeight(p, value)
    this.commit()
  }

  changed(): void {
    this.version++
  }

  /** Ends a change: an entry in the history, if there was one. */
  commit(): void {
    const now = this.snapshot()
    if (JSON.stringify(now) !== JSON.stringify(this.history.current)) this.history.push(now)
  }

  // The whole

  private get kind(): Omit<Snapshot, 'version' | 'widths' | 'weights' | 'course'> {
    return { data: this.data.name, loss: this.loss, activation: this.activation, training: this.settings }
  }

  snapshot(): Snapshot {
    return takeSnapshot(this.net, { ...this.kind, course: trainingStateOf(this.trainer, this.curve) })
  }

  restore(from: Snapshot): void {
    const before = this.predictedClasses()
    if (from.data !== this.data.name) this.data = DATASETS[from.data]()
    this.net = restoreNetwork(from)
    this.loss = from.loss
    this.activation = from.activation
    this.settings = from.training
    this.trainer = new Trainer(this.net, this.data, this.loss, this.settings)
    if (from.course) restoreTraining(this.trainer, from.course)
    this.curve = from.course?.curve ?? []
    this.selectedRow = Math.min(this.selectedRow, this.data.y.length - 1)
    this.hoveredRow = null
    if (this.selectedUnit && !this.exists({ layer: this.selectedUnit.layer, to: this.selectedUnit.unit, from: -1 })) this.selectedUnit = null
    if (this.selectedWeight && !this.exists(this.selectedWeight)) this.selectedWeight = null
    this.changed()
    this.announceFlips(before, '')
  }

  private exists(p: WeightIndex): boolean {
    const layer = this.net.layers[p.layer]
    return layer !== undefined && p.to < layer.nOut && p.from < layer.nIn
  }

  load(value: unknown): void {
    const found = checkSnapshot(value)
    this.endTraining()
    this.restore(found)
    this.commit()
  }

  /** Ends training that goes on, as an entry of its own, before something else is shown. */
  private endTraining(): void {
    this.stopTraining?.()
  }

  get canUndo(): boolean {
    return this.history.canUndo
  }

  get canRedo(): boolean {
    return this.history.canRedo
  }

  undo(): void {
    this.endTraining()
    const found = this.history.undo()
    if (found) this.restore(found)
  }

  redo(): void {
    this.endTraining()
    const found = this.history.redo()
    if (found) this.restore(found)
  }

  setActivation(name: string): void {
    this.endTraining()
    this.restore({ ...this.snapshot(), activation: name, course: null })
    this.commit()
  }

  /** Other widths between inputs and output: what both networks have stays, what is new is drawn. */
  setHidden(hidden: readonly number[]): void {
    this.endTraining()
    const next = zeroNetwork([this.data.features.length, ...hidden, 1], this.activation)
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
    this.restore(takeSnapshot(next, { ...this.kind, course: null }))
    this.commit()
  }

  /** Other settings, without new weights. */
  changeSettings(part: Partial<TrainingSettings>): void {
    this.settings = { ...this.settings, ...part }
    this.trainer.failure = null // it may go on with these
    this.changed()
    this.commit()
  }

  /** Weights drawn anew, for what is chosen and else for what is there. */
  restart(chosen: Partial<NetworkSetup> = {}): void {
    this.endTraining()
    const { data: name, activation, hidden, ...training } = { ...this.settings, ...this.shape, ...chosen }
    const data = DATASETS[name]()
    const net = zeroNetwork([data.features.length, ...hidden, 1], activation)
    initialise(net, training.scheme, training.seed, data.features.length === 1 ? 1 : 0)
    this.selectedRow = 0
    this.restore(takeSnapshot(net, { data: name, loss: data.loss, activation, training, course: null }))
    this.commit()
  }

  private get shape(): Pick<NetworkSetup, 'data' | 'activation' | 'hidden'> {
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
  takeStep(name: OptimiserName, rate: number): void {
    this.stepped(() => {
      this.trainer.applyGradients(this.trace, name, rate)
    })
    this.commit()
  }

  /** The network after such a step, without taking it. */
  networkAfterStep(name: OptimiserName, rate: number): Network {
    void this.version
    const net = clone(this.net)
    optimiserStep(net, this.trace, copyOptimiserState(this.trainer.optimiserState), name, rate)
    return net
  }

  /** The loss by step, also before the first. */
  get losses(): readonly LossPoint[] {
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
  get summary(): string {
    return this.data.classes ? `${this.correctCount} of ${this.data.y.length} right` : `loss ${fixed(this.trace.loss, 3)}`
  }

  predictedClass(r: number): number {
    return Number(this.outputs[r] >= (this.data.threshold ?? 0))
  }

  private predictedClasses(): { rows: number[]; right: number } {
    return { rows: this.data.classes ? Array.from(this.outputs, (_, r) => this.predictedClass(r)) : [], right: this.correctCount }
  }

  /** Flips of predictions, for the live region; nothing where none flipped. */
  private announceFlips(before: { rows: number[]; right: number }, what: string): void {
    const { classes, rows, y } = this.data
    if (this.nonFinite) return void (this.announcement = `Not a number: ${this.nonFinite.what} of layer ${this.nonFinite.layer}.`)
    if (!classes || before.rows.length !== y.length || y.length > 12) return
    const flips = before.rows.flatMap((old, r) =>
      old !== this.predictedClass(r) ? [`${rows[r]} is now ${classes[this.predictedClass(r)]}`] : [],
    )
    if (flips.length) this.announcement = `${what ? `${what}: ` : ''}${flips.join(', ')}. ${this.correctCount} of ${y.length} right.`
  }
}
