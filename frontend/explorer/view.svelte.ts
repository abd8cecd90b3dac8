// What the page shows around the laboratory: which tab, how deep the text goes, and the link.
import { fromHash, toHash } from './snapshot.ts'
import type { Own } from './own/own.svelte.ts'
import type { Lab } from './lab.svelte.ts'

export type Depth = 'idea' | 'maths' | 'deep' | 'picture'

export const DEPTHS: Readonly<Record<Depth, string>> = {
  idea: 'Idea',
  maths: 'Maths',
  deep: 'In depth',
  picture: 'Picture only',
}

/** Whatever the buttons Undo and Redo act on. */
export interface Undoable {
  readonly canUndo: boolean
  readonly canRedo: boolean
  undo(): void
  redo(): void
}

export class View {
  /** The user's network once it was opened: other tabs do not lose it. */
  own: Own | null = null
  /** What undo acts on in place of the laboratory. */
  undoable = $state.raw<Undoable | null>(null)
  tab = $state('play')
  depth = $state<Depth>('idea')
  /** What was wrong with the link the page was opened with. */
  refused = $state('')

  /** Text for the curious shows at this depth and below. */
  shows(level: 'idea' | 'maths' | 'deep'): boolean {
    const order = ['idea', 'maths', 'deep']
    return this.depth !== 'picture' && order.indexOf(level) <= order.indexOf(this.depth)
  }

  /** Restores what the address holds, if anything. A link that cannot be trusted is told and not used. */
  open(lab: Lab, tabs: readonly string[]): void {
    try {
      const found = fromHash(location.hash)
      if (!found) return
      lab.load(found.snapshot)
      if (tabs.includes(found.tab)) this.tab = found.tab
    } catch (error) {
      this.refused = `The link could not be used: ${(error as Error).message}.`
    }
  }

  /** The address that shows all this again, without the key a server's own link has. */
  link(lab: Lab): string {
    return location.href.replace(/[?#].*$/, '') + toHash(lab.snapshot(), this.tab)
  }

  /** Keeps the address up to date, where there is one: a page inside a notebook has none. */
  remember(lab: Lab): void {
    if (location.protocol === 'about:' || lab.dragging || lab.training) return
    try {
      history.replaceState(null, '', toHash(lab.snapshot(), this.tab))
    } catch {
      // A host that forbids it still has the export.
    }
  }
}
