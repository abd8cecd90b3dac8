// Training of the laboratory's network while the page is drawn: so many steps a frame.
import type { Lab } from './playground.svelte.ts'
import type { View } from './explorerState.svelte.ts'

export class Training {
  playing = $state(false)
  private frame = 0

  constructor(
    readonly lab: Lab,
    readonly view: View,
  ) {}

  play(): void {
    this.playing = this.lab.training = true
    this.lab.stop = () => this.pause()
    const turn = (): void => {
      if (!this.playing) return
      this.advance(this.view.shown.speed)
      if (!this.lab.failure) this.frame = requestAnimationFrame(turn)
    }
    this.frame = requestAnimationFrame(turn)
  }

  pause(): void {
    if (!this.playing) return
    this.playing = this.lab.training = false
    this.lab.stop = null
    cancelAnimationFrame(this.frame)
    this.lab.keep()
    if (!this.lab.failure) this.lab.said = `Paused: ${this.lab.standing}.`
  }

  once(): void {
    this.advance(1)
    this.lab.keep()
  }

  private advance(steps: number): void {
    const { lab } = this
    lab.advance(steps)
    if (!lab.failure) return
    const { what, layer, step } = lab.failure
    lab.said = `Stopped: ${what} of layer ${layer} is not a number at step ${step}.`
    this.pause()
  }
}
