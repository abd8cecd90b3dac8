// The playground: one small network, one data set, and the selection. All displayed numbers are derived from these, so
// an edit updates everything in the same frame.
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

const MAX_POINTS = 600

/** Drops every other point if there are many, so that drawing stays fast. */
const thinned = (points: readonly LossPoint[]): readonly LossPoint[] =>
  points.length <= MAX_POINTS ? points : points.filter((_, k) => k % 2 === 0 || k === points.length - 1)

export class Playground implements NetworkModel {
  data = $state.raw<Dataset>(DATASETS.songs())
  net = $state.raw<Network>(restoreNetwork(THREE_RIGHT))
  loss = $state<LossName>('mse')
  activation = $state('tanh')
  /** The training settings. */
  settings = $state.raw<TrainingSettings>(DEFAULT_TRAINING)
  /** The row whose numbers the figure shows. */
  selectedRow = $state(0)
  /** The row under the pointer, shown until it leaves. */
  hoveredRow = $state<number | null>(null)
  selectedUnit = $state.raw<UnitIndex | null>(null)
  selectedWeight = $state.raw<WeightIndex | null>(null)
  /** The weight that has the pointer or the focus. */
  hoveredWeight = $state.raw<WeightIndex | null>(null)
  dragging = $state(false)
  training = $state(false)
  /** Pauses training; null if it is not running. */
  stopTraining: (() => void) | null = null
  announcement = $state('')
  /** Number of changes of weights. `net` stays the same object, so this counter triggers updates. */
  private version = $state(0)
  private readonly history = new UndoHistory<Snapshot>(THREE_RIGHT)
  /** The training state without the weights: optimizer state, order of rows, number of steps. */
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

  /** Selects a row, and the output unit if no unit is selected. */
  selectRow(row: number): void {
    this.selectedRow = row
    this.hoveredRow = null
    this.selectedUnit ??= { layer: this.net.layers.length - 1, unit: 0 }
  }

  /** The selection, for a link. */
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

  /** The name of a unit: a feature, h₁ … (h2.1 … with several hidden layers), or the target. Layer −1 is the inputs. */
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

  /** Changes one weight without an entry in the history, during a drag. */
  moveWeight(p: WeightIndex, value: number): void {
    const before = this.predictedClasses()
    const layer = this.net.layers[p.layer]
    if (p.from < 0) layer.b[p.to] = value
    else layer.W[p.to * layer.nIn + p.from] = value
    this.changed()
    this.announceFlips(before, `${this.weightName(p)} ${fixed(value)}`)
  }

  /** Changes one weight and adds an entry to the history. */
  setWeight(p: WeightIndex, value: number): void {
    this.moveWeight(p, value)
    this.commit()
  }

  changed(): void {
    this.version++
  }

  /** Ends a change: adds an entry to the history if anything changed. */
  commit(): void {
    const now = this.snapshot()
    if (JSON.stringify(now) !== JSON.stringify(this.history.current)) this.history.push(now)
  }

  // State

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

  /** Stops running training before something else is shown. The trained weights become an entry of the history. */
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

  /** Sets the widths of the hidden layers. Weights that both networks have are kept; new ones are drawn. */
  setHidden(hidden: readonly number[]): void {
    this.endTraining()
    const next = zeroNetwork([this.data.features.length, ...hidden, 1], this.activation)
    initialise(next, 'xavier', 1)
    // The figure shows two decimals, so new weights are rounded to two decimals.
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

  /** Changes the training settings and keeps the weights. */
  changeSettings(part: Partial<TrainingSettings>): void {
    this.settings = { ...this.settings, ...part }
    this.trainer.failure = null // training may continue with the new settings
    this.changed()
    this.commit()
  }

  /** Draws new weights. Settings that are not in `chosen` keep their values. */
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

  /** Trains for a number of steps; stops at a step that would leave a number that is not finite. */
  advance(steps: number): void {
    this.trainer.settings = this.settings
    this.stepped(() => {
      for (let k = 0; k < steps && this.trainer.advance(); k++);
    })
  }

  /** Takes one step on all rows with the given optimizer and learning rate, if all numbers remain finite. */
  takeStep(name: OptimiserName, rate: number): void {
    this.stepped(() => {
      this.trainer.applyGradients(this.trace, name, rate)
    })
    this.commit()
  }

  /** The network as it would be after such a step. */
  networkAfterStep(name: OptimiserName, rate: number): Network {
    void this.version
    const net = clone(this.net)
    optimiserStep(net, this.trace, copyOptimiserState(this.trainer.optimiserState), name, rate)
    return net
  }

  /** Points of step and loss; before the first step, the current loss. */
  get losses(): readonly LossPoint[] {
    return this.curve.length ? this.curve : [[this.step, this.trace.loss]]
  }

  private stepped(take: () => void): void {
    const { step, losses } = this
    take()
    this.changed()
    if (this.step > step) this.curve = thinned([...losses, [this.step, this.trace.loss]])
  }

  // Text for screen readers

  /** The number of correct rows, or the loss. */
  get summary(): string {
    return this.data.classes ? `${this.correctCount} of ${this.data.y.length} correct` : `loss ${fixed(this.trace.loss, 3)}`
  }

  predictedClass(r: number): number {
    return Number(this.outputs[r] >= (this.data.threshold ?? 0))
  }

  private predictedClasses(): number[] {
    return this.data.classes ? Array.from(this.outputs, (_, r) => this.predictedClass(r)) : []
  }

  /** Announces changed predictions in the live region. */
  private announceFlips(before: number[], what: string): void {
    const { classes, rows, y } = this.data
    if (this.nonFinite) return void (this.announcement = `Not finite: ${this.nonFinite.what} of layer ${this.nonFinite.layer}.`)
    if (!classes || before.length !== y.length || y.length > 12) return
    const flips = before.flatMap((old, r) =>
      old !== this.predictedClass(r) ? [`${rows[r]} is now ${classes[this.predictedClass(r)]}`] : [],
    )
    if (flips.length) this.announcement = `${what ? `${what}: ` : ''}${flips.join(', ')}. ${this.correctCount} of ${y.length} correct.`
  }
}
