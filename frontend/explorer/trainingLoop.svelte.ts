// Trains the playground’s network while the page is drawn: a number of steps per frame.
import type { Playground } from './playground.svelte.ts'
import type { ExplorerState } from './explorerState.svelte.ts'

export class TrainingLoop {
  playing = $state(false)
  private frame = 0

  constructor(
    readonly playground: Playground,
    readonly explorer: ExplorerState,
  ) {}

  play(): void {
    this.playing = this.playground.training = true
    this.playground.stopTraining = () => this.pause()
    const turn = (): void => {
      if (!this.playing) return
      this.advance(this.explorer.options.speed)
      if (!this.playground.failure) this.frame = requestAnimationFrame(turn)
    }
    this.frame = requestAnimationFrame(turn)
  }

  pause(): void {
    if (!this.playing) return
    this.playing = this.playground.training = false
    this.playground.stopTraining = null
    cancelAnimationFrame(this.frame)
    this.playground.commit()
    if (!this.playground.failure) this.playground.announcement = `Paused: ${this.playground.summary}.`
  }

  once(): void {
    this.advance(1)
    this.playground.commit()
  }

  private advance(steps: number): void {
    const { playground } = this
    playground.advance(steps)
    if (!playground.failure) return
    const { what, layer, step } = playground.failure
    playground.announcement = `Stopped: ${what} of layer ${layer} is not finite at step ${step}.`
    this.pause()
  }
}
