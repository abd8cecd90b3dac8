// The user's network in the page: the row that is looked at, what was changed of it, and weights that can be moved.
// All rows are kept up to date by increments while a weight moves, and computed whole when it comes to rest.
import { Program, type Origin } from '../../engine/program.ts'
import { History } from '../history.svelte.ts'
import { unpacked, type OwnModel } from './model.ts'
import { predict, type Prediction } from './predict.ts'

/** A weight of the user's network: layer among the program's, unit it leads to, unit it comes from (−1: bias). */
export interface Spot {
  readonly layer: number
  readonly to: number
  readonly from: number
}

interface Edit extends Spot {
  readonly before: number
  readonly after: number
}

export class Own {
  readonly program: Program
  readonly rows: Float64Array
  readonly B: number
  readonly nIn: number
  row = $state(0)
  x = $state.raw(new Float64Array(0))
  layer = $state(0)
  unit = $state(0)
  spot = $state.raw<Spot | null>(null)
  /** The raw output that contributions are told about. */
  output = $state(0)
  private version = $state(0)
  private all: Float64Array[]
  private readonly history = new History<Edit | null>(null)
  private before: number | null = null

  constructor(readonly model: OwnModel) {
    const tensors = Object.fromEntries(Object.entries(model.tensors).map(([name, value]) => [name, unpacked(value)]))
    this.program = new Program(model.spec, tensors)
    this.rows = unpacked(model.rows)
    this.nIn = this.program.nIn
    this.B = this.rows.length / this.nIn
    this.all = this.program.run(this.rows, this.B)
    this.choose(0)
    const first = this.program.ops.findIndex((op) => op.linear)
    this.layer = Math.max(0, first)
    const now = this.prediction
    this.output = now.choices.reduce((a, b) => (b.value > a.value ? b : a)).output
  }

  /** Input of every layer and, last, the outputs, for the row as it is now. */
  readonly values: Float64Array[] = $derived.by(() => {
    void this.version
    return this.program.run(this.x, 1)
  })
  readonly outputs: Float64Array = $derived(this.values[this.values.length - 1])
  readonly prediction: Prediction = $derived.by(() => predict(this.model.output, this.outputs))
  readonly back: Float64Array[] = $derived.by(() => {
    const out = new Float64Array(this.program.nOut)
    out[this.output] = 1
    return this.program.back(this.values, out, 1)
  })
  /** Rows whose prediction is the target, where both are classes. */
  readonly right: number = $derived.by(() => {
    void this.version
    const { targets, output } = this.model
    if (!targets || !output.classes?.length) return NaN
    const C = this.program.nOut
    const z = this.all[this.all.length - 1]
    return targets.filter((t, r) => predict(output, z.subarray(r * C, (r + 1) * C)).text === String(t)).length
  })

  get stamp(): number {
    return this.version
  }

  choose(row: number): void {
    this.row = row
    this.x = this.rows.slice(row * this.nIn, (row + 1) * this.nIn)
  }

  get changed(): boolean {
    return this.x.some((value, i) => value !== this.rows[this.row * this.nIn + i])
  }

  setInput(i: number, value: number): void {
    const next = this.x.slice()
    next[i] = value
    this.x = next
  }

  // Weights

  get(s: Spot): number {
    void this.version
    const op = this.program.ops[s.layer]
    return s.from < 0 ? op.linear!.b![s.to] : op.linear!.W[s.to * op.nIn + s.from]
  }

  put(s: Spot, value: number): void {
    this.before ??= this.get(s)
    this.program.nudge(this.all, this.B, s.layer, s.to, s.from, value - this.get(s))
    this.version++
  }

  keep(s: Spot): void {
    if (this.before !== null && this.before !== this.get(s))
      this.history.push({ ...s, before: this.before, after: this.get(s) })
    this.before = null
    this.refresh()
  }

  private refresh(): void {
    this.all = this.program.run(this.rows, this.B)
    this.version++
  }

  private write(s: Spot, value: number): void {
    const op = this.program.ops[s.layer]
    if (s.from < 0) op.linear!.b![s.to] = value
    else op.linear!.W[s.to * op.nIn + s.from] = value
    this.refresh()
  }

  get canUndo(): boolean {
    return this.history.canUndo
  }

  get canRedo(): boolean {
    return this.history.canRedo
  }

  undo(): void {
    const edit = this.history.current
    if (edit && this.history.undo() !== undefined) this.write(edit, edit.before)
  }

  redo(): void {
    const edit = this.history.redo()
    if (edit) this.write(edit, edit.after)
  }

  // Names

  inputName(i: number): string {
    return this.model.features[i]?.name ?? `x${i + 1}`
  }

  /** What number `unit` of values[layer] is called. */
  nameOf(layer: number, unit: number): string {
    if (layer === 0) return this.inputName(unit)
    const op = this.program.ops[layer - 1]
    if (layer === this.program.ops.length) return this.outputName(unit)
    const origin = op.origins?.[unit]
    if (origin) return this.partName(origin)
    return `${op.name} ${unit + 1}`
  }

  /** One number of an embedded column: the column, and which value or place of it. */
  private partName({ input, part, parts, oneHot }: Origin): string {
    const { name, values } = this.model.features[input]
    if (oneHot && parts > 1) return `${name} = ${values[part]}`
    return parts > 1 ? `${name} #${part + 1}` : name
  }

  /** What each input adds to the explained output, to first order: x·∂output/∂x, over the numbers it becomes. */
  pushes(): number[] {
    const { origins } = this.program.ops[0]
    if (!origins) return Array.from(this.x, (x, k) => x * this.back[0][k])
    const found = new Array<number>(this.nIn).fill(0)
    origins.forEach(({ input }, k) => (found[input] += this.values[1][k] * this.back[1][k]))
    return found
  }

  outputName(unit: number): string {
    const { output } = this.model
    if (output.classes?.length && output.kind === 'multiclass') return String(output.classes[0][unit])
    if (output.kind === 'binary') return String(output.classes![0][1])
    return output.names[Math.floor(unit / (output.per_target ?? 1))] ?? `output ${unit + 1}`
  }
}
