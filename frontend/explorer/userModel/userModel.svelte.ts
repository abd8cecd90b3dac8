// The user's network: the selected row, its changed inputs, and the changed weights. While a weight is dragged, the outputs
// of all rows are updated by increments; when the drag ends, they are computed again in full. For an ensemble, the page shows
// the layers of one member at a time, and predictions of all members together.
import type { Origin } from '../../engine/layer.ts'
import type { WeightIndex } from '../../engine/network.ts'
import { InferenceNetwork } from '../../engine/inference.ts'
import type { Finding } from '../../shared/finding.ts'
import { UndoHistory } from '../undoHistory.svelte.ts'
import { unpack, type ModelData } from './modelData.ts'
import { predict, combineMembers, type Prediction } from './predict.ts'
import { checkSavedState, type ModelEdits, type SavedState } from './savedState.ts'

const keyOf = (member: number, s: WeightIndex): string => [member, s.layer, s.to, s.from].join(' ')
const spotOf = (key: string): [number, WeightIndex] => {
  const [member, layer, to, from] = key.split(' ').map(Number)
  return [member, { layer, to, from }]
}

export class UserModel {
  readonly networks: readonly InferenceNetwork[]
  readonly rows: Float64Array
  readonly B: number
  readonly nIn: number
  row = $state(0)
  x = $state.raw(new Float64Array(0))
  /** The index in `networks` of the member that is shown. */
  member = $state(0)
  layer = $state(0)
  unit = $state(0)
  selectedWeight = $state.raw<WeightIndex | null>(null)
  /** The raw output whose contributions are shown. */
  output = $state(0)
  /** Whether something is being dragged or drawn. */
  dragging = $state(false)
  /** Number of changes of the selected member's weights. `settled` counts changes that may affect all members. */
  private version = $state(0)
  private settled = $state(0)
  /** The values of all rows in every layer of the selected member, and the outputs of every member. */
  private rowValues: Float64Array[]
  private readonly memberOutputs: Float64Array[]
  /** Whether a weight has changed since the last full computation of all rows. */
  private stale = false
  /** The original values of changed weights. */
  private readonly originalWeights = new Map<string, number>()
  private readonly history: UndoHistory<ModelEdits>

  constructor(readonly data: ModelData) {
    this.networks = data.tensors.map(
      (tensors) =>
        new InferenceNetwork(
          data.spec,
          Object.fromEntries(Object.entries(tensors).map(([name, value]) => [name, unpack(value)])),
        ),
    )
    this.rows = unpack(data.rows)
    this.nIn = this.network.nIn
    this.B = this.rows.length / this.nIn
    const alone = this.networks.length < data.members
    this.memberOutputs = (alone ? [data.predictions[data.member]] : data.predictions).map((z) => Float64Array.from(z.flat()))
    this.member = alone ? 0 : data.member
    this.rowValues = []
    this.refresh(this.member)
    this.showRow(0)
    const first = this.network.layers.findIndex((op) => op.linear)
    this.layer = Math.max(0, first)
    this.output = this.prediction.choices.reduce((a, b) => (b.value > a.value ? b : a)).output
    this.history = new UndoHistory(this.edits)
  }

  get network(): InferenceNetwork {
    return this.networks[this.member]
  }

  /** For the current row: the input of every layer and, last, the outputs. */
  readonly values: Float64Array[] = $derived.by(() => {
    void this.version
    return this.network.run(this.x, 1)
  })
  private readonly otherOutputs: (Float64Array | null)[] = $derived.by(() => {
    void this.settled
    return this.networks.map((network, m) => (m === this.member ? null : network.run(this.x, 1).at(-1)!))
  })
  /** The first layer whose numbers are not all finite. */
  readonly nonFiniteLayer: string | null = $derived.by(() => {
    const l = this.values.slice(1).findIndex((values) => !values.every(Number.isFinite))
    return l < 0 ? null : this.network.layers[l].name
  })
  /** Raw outputs of every member for the current row. */
  readonly outputs: Float64Array[] = $derived(this.otherOutputs.map((z) => z ?? this.values.at(-1)!))
  readonly prediction: Prediction = $derived.by(() => {
    const { output } = this.data
    return predict(output, combineMembers(output, this.outputs))
  })
  readonly gradients: Float64Array[] = $derived.by(() => {
    const out = new Float64Array(this.network.nOut)
    out[this.output] = 1
    return this.network.back(this.values, out, 1)
  })
  /** Number of rows whose predicted class is the target; NaN without targets or classes. */
  readonly correctCount: number = $derived.by(() => {
    void this.version
    const { targets, output } = this.data
    if (!targets || !output.classes?.length) return NaN
    const C = this.network.nOut
    const of = (r: number): Float64Array[] => this.memberOutputs.map((z) => z.subarray(r * C, (r + 1) * C))
    return targets.filter((t, r) => predict(output, combineMembers(output, of(r))).text === String(t)).length
  })

  /** Whether the page has only one member of an ensemble, because all members would be too large. */
  get singleMember(): boolean {
    return this.networks.length < this.data.members
  }

  /** The prediction of the whole model for the original row, from the outputs computed in Python. */
  get wholePrediction(): string {
    const { output, predictions } = this.data
    const z = predictions.map((one) => one[this.row])
    return predict(output, combineMembers(output, z)).text
  }

  get weightsVersion(): number {
    return this.version
  }

  // Findings of the training run

  /** The number of the shown member, counted from 1. */
  get memberNumber(): number {
    return (this.singleMember ? this.data.member : this.member) + 1
  }

  /** The findings about a layer of the shown member. */
  layerFindings(name: string): Finding[] {
    return this.data.findings.filter(
      ({ where }) => where.layer === name && (where.member === undefined || where.member === this.memberNumber),
    )
  }

  /** The adjectives of the faulty units of a layer, such as "dead". */
  unitFaults(name: string): Map<number, string> {
    return new Map(this.layerFindings(name).flatMap(({ where, unit }) => (where.units ?? []).map((k) => [k, unit] as const)))
  }

  /** The findings about a unit of linear layer `layer`, also those about the activation of the unit. */
  findingsOfUnit(layer: number, unit: number): Finding[] {
    const { layers } = this.network
    let end = layer + 1
    while (end < layers.length && !layers[end].linear && layers[end].nOut === layers[layer].nOut) end++
    const found = layers.slice(layer, end).flatMap((op) => this.layerFindings(op.name))
    return found.filter(({ where }) => where.units?.includes(unit))
  }

  /** Whether the page has the layer of a finding. */
  canShow({ where }: Finding): boolean {
    const here = where.member === undefined || !this.singleMember || where.member === this.memberNumber
    return here && this.network.layers.some((op) => op.name === where.layer)
  }

  /** Selects the member, and the first unit of a finding or of its layer. */
  showFinding({ where }: Finding): void {
    if (where.member !== undefined && !this.singleMember) this.selectMember(where.member - 1)
    this.selectUnit(
      this.network.layers.findIndex((op) => op.name === where.layer),
      where.units?.[0] ?? 0,
    )
  }

  /** Selects unit `unit` of a layer for editing: the linear layer at or before it computes the unit. */
  selectUnit(layer: number, unit: number): void {
    const { layers } = this.network
    let at = layer
    while (at > 0 && !layers[at].linear) at--
    if (!layers[at]?.linear) return
    this.layer = at
    this.unit = unit
    this.selectedWeight = null
  }

  // The row

  /** Shows a row with its original inputs. */
  showRow(row: number): void {
    this.row = row
    this.x = this.rows.slice(row * this.nIn, (row + 1) * this.nIn)
  }

  /** Shows a row, and adds an entry to the history. */
  selectRow(row: number): void {
    this.showRow(row)
    this.commit()
  }

  get inputsChanged(): boolean {
    return this.x.some((value, i) => value !== this.rows[this.row * this.nIn + i])
  }

  setInput(i: number, value: number): void {
    const next = this.x.slice()
    next[i] = value
    this.x = next
  }

  // Weights

  getWeight(s: WeightIndex): number {
    void this.version
    return this.read(this.member, s)
  }

  private read(member: number, s: WeightIndex): number {
    const op = this.networks[member].layers[s.layer]
    return s.from < 0 ? op.linear!.b![s.to] : op.linear!.W[s.to * op.nIn + s.from]
  }

  /** Changes a weight during a drag. */
  moveWeight(s: WeightIndex, value: number): void {
    this.rememberOriginal(this.member, s)
    this.network.nudge(this.rowValues, this.B, s.layer, s.to, s.from, value - this.read(this.member, s))
    this.write(this.member, s, value) // adding the difference may leave a rounding error in the last digit
    this.memberOutputs[this.member] = this.rowValues.at(-1)!
    this.stale = true
    this.version++
  }

  private rememberOriginal(member: number, s: WeightIndex): void {
    const key = keyOf(member, s)
    if (!this.originalWeights.has(key)) this.originalWeights.set(key, this.read(member, s))
  }

  private write(member: number, s: WeightIndex, value: number): void {
    const op = this.networks[member].layers[s.layer]
    if (s.from < 0) op.linear!.b![s.to] = value
    else op.linear!.W[s.to * op.nIn + s.from] = value
  }

  /** Ends a change: adds an entry to the history if anything changed. */
  commit(): void {
    this.dragging = false
    if (this.stale) this.refresh(this.member)
    this.stale = false
    const now = this.edits
    if (JSON.stringify(now) !== JSON.stringify(this.history.current)) this.history.push(now)
  }

  private refresh(member: number): void {
    const found = this.networks[member].run(this.rows, this.B)
    if (member === this.member) this.rowValues = found
    this.memberOutputs[member] = found.at(-1)!
    this.version++
  }

  selectMember(member: number): void {
    this.member = member
    this.refresh(member)
  }

  // Undo and links

  get edits(): ModelEdits {
    const start = this.row * this.nIn
    return {
      row: this.row,
      inputs: Array.from(this.x.entries()).filter(([i, value]) => value !== this.rows[start + i]),
      weights: [...this.originalWeights].flatMap(([key, first]): ModelEdits['weights'] => {
        const [member, s] = spotOf(key)
        const now = this.read(member, s)
        return now === first ? [] : [[member, s.layer, s.to, s.from, now]]
      }),
    }
  }

  private apply({ row, inputs, weights }: ModelEdits): void {
    const members = new Set<number>([this.member])
    for (const [key, value] of this.originalWeights) {
      const [member, s] = spotOf(key)
      this.write(member, s, value)
      members.add(member)
    }
    this.originalWeights.clear()
    for (const [member, layer, to, from, value] of weights) {
      this.rememberOriginal(member, { layer, to, from })
      this.write(member, { layer, to, from }, value)
      members.add(member)
    }
    members.forEach((member) => this.refresh(member))
    this.showRow(row)
    const x = this.x.slice()
    for (const [i, value] of inputs) x[i] = value
    this.x = x
    this.settled++
  }

  /** The state that a link stores. Only a page of the same model can restore it. */
  get state(): SavedState {
    void this.version
    const { member, layer, unit, output } = this
    return { model: this.data.mark, ...this.edits, member, layer, unit, output, from: this.selectedWeight?.from ?? null }
  }

  /** Restores a state from an untrusted source. An error names the first invalid part. */
  load(value: unknown): void {
    const state = checkSavedState(value, this)
    this.member = state.member
    this.apply(state)
    this.layer = state.layer
    this.unit = state.unit
    this.output = state.output
    this.selectedWeight = state.from === null ? null : { layer: state.layer, to: state.unit, from: state.from }
    this.commit()
  }

  get canUndo(): boolean {
    return this.history.canUndo
  }

  get canRedo(): boolean {
    return this.history.canRedo
  }

  undo(): void {
    const found = this.history.undo()
    if (found) this.apply(found)
  }

  redo(): void {
    const found = this.history.redo()
    if (found) this.apply(found)
  }

  // Names

  inputName(i: number): string {
    return this.data.features[i]?.name ?? `x${i + 1}`
  }

  /** The name of number `unit` of values[layer]: that of its input column if it depends on one column only. */
  unitName(layer: number, unit: number): string {
    if (layer === 0) return this.inputName(unit)
    if (layer === this.network.layers.length) return this.outputName(unit)
    const op = this.network.layers[layer - 1]
    const origin = op.origins?.[unit]
    if (origin) return this.columnPartName(origin)
    if (op.elementwise && this.isPerInput(layer - 1)) return this.unitName(layer - 1, unit)
    return `${op.name} ${unit + 1}`
  }

  /** Whether each number of values[layer] depends on a single input. */
  isPerInput(layer: number): boolean {
    return this.network.layers.slice(0, layer).every((op) => op.elementwise || op.origins)
  }

  /** The name of one number of an embedded column: the column, and its category or index. */
  private columnPartName({ input, part, parts, oneHot }: Origin): string {
    const { name, values } = this.data.features[input]
    if (oneHot && parts > 1) return `${name} = ${values[part]}`
    return parts > 1 ? `${name} #${part + 1}` : name
  }

  /** The contribution of each input to the explained output, to first order: x·∂output/∂x, summed over its encoded numbers. */
  contributions(): number[] {
    const { origins } = this.network.layers[0]
    if (!origins) return Array.from(this.x, (x, k) => x * this.gradients[0][k])
    const found = new Array<number>(this.nIn).fill(0)
    origins.forEach(({ input }, k) => (found[input] += this.values[1][k] * this.gradients[1][k]))
    return found
  }

  outputName(unit: number): string {
    const { output } = this.data
    const classes = output.kind === 'multilabel' ? undefined : output.classes?.[0]
    if (classes) return String(classes[this.network.nOut > 1 ? unit : 1])
    return output.names[Math.floor(unit / (output.per_target ?? 1))] ?? `output ${unit + 1}`
  }
}
