// What the page shows around the laboratory, and the link that shows it again.
import { Drawing } from './targetCurve.svelte.ts'
import type { Lab } from './playground.svelte.ts'
import type { Own } from './userModel/userModel.svelte.ts'
import { checkedShown, start, type Shown } from './displayOptions.ts'
import { fromHash, toHash } from './snapshot.ts'

/** Whatever the buttons Undo and Redo act on. */
export interface Undoable {
  readonly canUndo: boolean
  readonly canRedo: boolean
  undo(): void
  redo(): void
}

/** Tabs that have nothing to undo. */
export const FIXED: Undoable = { canUndo: false, canRedo: false, undo: () => {}, redo: () => {} }

export class View {
  readonly shown = $state<Shown>(start())
  readonly drawing = new Drawing()
  /** What was wrong with the link the page was opened with. */
  refused = $state('')

  constructor(
    readonly lab: Lab,
    /** The user's network, where there is one that the page can run. */
    readonly own: Own | null,
  ) {}

  get depth(): Shown['depth'] {
    return this.shown.depth
  }

  /** Text for the curious shows at this depth and below. */
  shows(level: 'idea' | 'maths' | 'deep'): boolean {
    const order = ['idea', 'maths', 'deep']
    return this.depth !== 'picture' && order.indexOf(level) <= order.indexOf(this.depth)
  }

  /** Restores what the address holds, if anything. A link that cannot be trusted is told and not used. */
  open(hash: string, tabs: readonly string[]): void {
    this.refused = ''
    try {
      const found = fromHash(hash)
      if (!found) return
      const shown = checkedShown(found.more)
      if (found.more.own !== undefined) this.own?.load(found.more.own)
      this.lab.load(found.snapshot)
      if (shown.look) this.lab.look = shown.look
      if (shown.fitCurve) this.drawing.choose(shown.fitCurve)
      const tab = tabs.includes(shown.tab ?? '') ? shown.tab : this.shown.tab
      Object.assign(this.shown, shown, { tab })
    } catch (error) {
      this.refused = `The link could not be used: ${(error as Error).message}.`
    }
  }

  /** The part of the address that shows all this again. */
  get hash(): string {
    const shown = { ...this.shown, look: this.lab.look, fitCurve: this.drawing.curve }
    return toHash(this.lab.snapshot(), this.own ? { ...shown, own: this.own.state } : shown)
  }

  /** The whole address, without the key a server's own link has. */
  get link(): string {
    return location.href.replace(/[?#].*$/, '') + this.hash
  }

  /** Keeps the address up to date, where there is one: a page inside a notebook has none. */
  remember(): (() => void) | undefined {
    if (location.protocol === 'about:' || this.lab.dragging || this.lab.training || this.own?.held) return
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
