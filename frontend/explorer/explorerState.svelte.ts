// The state of the page around the playground, and the link that restores it.
import { TargetCurve } from './targetCurve.svelte.ts'
import type { Playground } from './playground.svelte.ts'
import type { UserModel } from './userModel/userModel.svelte.ts'
import { checkDisplayOptions, defaultOptions, type DisplayOptions } from './displayOptions.ts'
import { fromHash, toHash } from './snapshot.ts'

/** Whatever the buttons Undo and Redo act on. */
export interface Undoable {
  readonly canUndo: boolean
  readonly canRedo: boolean
  undo(): void
  redo(): void
}

/** Tabs that have nothing to undo. */
export const NOTHING_TO_UNDO: Undoable = { canUndo: false, canRedo: false, undo: () => {}, redo: () => {} }

export class ExplorerState {
  readonly options = $state<DisplayOptions>(defaultOptions())
  readonly targetCurve = new TargetCurve()
  /** What was wrong with the link the page was opened with. */
  linkError = $state('')

  constructor(
    readonly playground: Playground,
    /** The user's network, where there is one that the page can run. */
    readonly userModel: UserModel | null,
  ) {}

  get depth(): DisplayOptions['depth'] {
    return this.options.depth
  }

  /** Text for the curious shows at this depth and below. */
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
      this.linkError = `The link could not be used: ${(error as Error).message}.`
    }
  }

  /** The part of the address that shows all this again. */
  get hash(): string {
    const shown = { ...this.options, look: this.playground.selection, fitCurve: this.targetCurve.curve }
    return toHash(this.playground.snapshot(), this.userModel ? { ...shown, own: this.userModel.state } : shown)
  }

  /** The whole address, without the key a server's own link has. */
  get link(): string {
    return location.href.replace(/[?#].*$/, '') + this.hash
  }

  /** Keeps the address up to date, where there is one: a page inside a notebook has none. */
  saveToAddress(): (() => void) | undefined {
    if (location.protocol === 'about:' || this.playground.dragging || this.playground.training || this.userModel?.dragging) return
    const { hash } = this
    // Browsers stop pages that change their address many times a second.
    const timer = setTimeout(() => {
      try {
        history.replaceState(null, '', hash)
      } catch {
        // A host that forbids it still has the export.
      }
    }, 150)
    return () => clearTimeout(timer)
  }
}
