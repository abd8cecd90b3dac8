// Training of the laboratory's network while the page is drawn: so many steps a frame, the loss kept for its curve.
import { Trainer, type Failure } from '../engine/trainer.ts'
import type { Lab } from './lab.svelte.ts'
import type { View } from './view.svelte.ts'

const KEPT = 600

export class Training {
  playing = $state(false)
  step = $state(0)
  failure = $state.raw<Failure | null>(null)
  curve = $state.raw<[number, number][]>([])
  private trainer: Trainer | null = null
  private frame = 0

  constructor(
    readonly lab: Lab,
    readonly view: View,
  ) {}

  /** Starts to count anew: other weights, other data. */
  reset(): void {
    this.pause()
    this.trainer = null
    this.step = 0
    this.failure = null
    this.curve = [[0, this.lab.trace.loss]]
  }

  play(): void {
    this.playing = this.lab.training = true
    const turn = (): void => {
      if (!this.playing) return
      this.advance(this.view.shown.speed)
      if (!this.failure) this.frame = requestAnimationFrame(turn)
    }
    this.frame = requestAnimationFrame(turn)
  }

  pause(): void {
    if (!this.playing) return
    this.playing = this.lab.training = false
    cancelAnimationFrame(this.frame)
    this.lab.keep()
    if (!this.failure) this.lab.said = `Paused: ${this.lab.standing}.`
  }

  once(): void {
    this.advance(1)
    this.lab.keep()
  }

  private advance(steps: number): void {
    const { lab } = this
    if (!this.trainer || this.trainer.net !== lab.net) {
      this.trainer = new Trainer(lab.net, lab.data, lab.loss, lab.settings)
      if (this.curve.length === 0) this.curve = [[0, lab.trace.loss]]
    }
    this.trainer.settings = lab.settings
    for (let k = 0; k < steps && this.trainer.advance(); k++) this.step++
    lab.changed()
    this.curve = thinned([...this.curve, [this.step, lab.trace.loss]])
    if (!this.trainer.failure) return
    this.failure = this.trainer.failure
    lab.said = `Stopped: ${this.failure.what} of layer ${this.failure.layer} is not a number at step ${this.failure.step}.`
    this.pause()
  }
}

/** Every other point once there are many: the curve keeps its shape and the page its speed. */
function thinned(points: [number, number][]): [number, number][] {
  return points.length <= KEPT ? points : points.filter((_, k) => k % 2 === 0 || k === points.length - 1)
}
