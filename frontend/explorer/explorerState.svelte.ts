// The state of the page around the playground, and the link that restores it.
import { TargetCurve } from './targetCurve.svelte.ts'
import type { Playground } from './playground.svelte.ts'
import type { UserModel } from './userModel/userModel.svelte.ts'
import { checkDisplayOptions, defaultOptions, type DisplayOptions } from './displayOptions.ts'
import { fromHash, toHash } from './snapshot.ts'

/** An object that the buttons Undo and Redo act on. */
export interface Undoable {
  readonly canUndo: boolean
  readonly canRedo: boolean
  undo(): void
  redo(): void
}

/** For tabs without anything to undo. */
export const NOTHING_TO_UNDO: Undoable = { canUndo: false, canRedo: false, undo: () => {}, redo: () => {} }

export class ExplorerState {
  readonly options = $state<DisplayOptions>(defaultOptions())
  readonly targetCurve = new TargetCurve()
  /** Why the link that opened the page is invalid; empty if it is valid. */
  linkError = $state('')

  constructor(
    readonly playground: Playground,
    /** The user's network; null if the page has no network or cannot run it. */
    readonly userModel: UserModel | null,
  ) {}

  get depth(): DisplayOptions['depth'] {
    return this.options.depth
  }

  /** Whether text of this level is shown at the chosen depth. */
  shows(level: 'idea' | 'maths' | 'deep'): boolean {
    const order = ['idea', 'maths', 'deep']
    return this.depth !== 'picture' && order.indexOf(level) <= order.indexOf(this.depth)
  }

  /** Restores the state from the address, if it has one. An invalid link is reported and not used. */
  openLink(hash: string, tabs: readonly string[]): void {
    this.linkError = ''
    try {
      const found = fromHash(hash)
      if (!found) return
      const shown = checkDisplayOptions(found.more)
      if (found.more.own !== undefined) this.userModel?.load(found.more.own)
      this.playground.load(found.snapshot)
      if (shown.look) this.playground.selection = shown.look
      if (shown.fitCurve) this.targetCurve.choose(shown.fitCurve)
      const tab = tabs.includes(shown.tab ?? '') ? shown.tab : this.options.tab
      Object.assign(this.options, shown, { tab })
    } catch (error) {
      this.linkError = `The link cannot be opened: ${(error as Error).message}.`
    }
  }

  /** The part of the address that restores this state. */
  get hash(): string {
    const shown = { ...this.options, look: this.playground.selection, fitCurve: this.targetCurve.curve }
    return toHash(this.playground.snapshot(), this.userModel ? { ...shown, own: this.userModel.state } : shown)
  }

  /** The complete address, without the access key of the local server. */
  get link(): string {
    return location.href.replace(/[?#].*$/, '') + this.hash
  }

  /** Writes the state to the address. A page inside a notebook has no address. */
  saveToAddress(): (() => void) | undefined {
    if (location.protocol === 'about:' || this.playground.dragging || this.playground.training || this.userModel?.dragging) return
    const { hash } = this
    // Browsers block pages that change their address many times a second.
    const timer = setTimeout(() => {
      try {
        history.replaceState(null, '', hash)
      } catch {
        // If the host forbids it, the user can still export the state.
      }
    }, 150)
    return () => clearTimeout(timer)
  }
}
