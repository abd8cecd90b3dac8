// Undo and redo: a list of states and the index of the current one. Each finished change is one entry, and so is a whole drag.
const MAX_ENTRIES = 200

export class UndoHistory<T> {
  private entries: T[]
  private at = $state(0)
  private length = $state(1)

  constructor(first: T) {
    this.entries = [first]
  }

  get current(): T {
    return this.entries[this.at]
  }

  get canUndo(): boolean {
    return this.at > 0
  }

  get canRedo(): boolean {
    return this.at < this.length - 1
  }

  push(entry: T): void {
    this.entries = [...this.entries.slice(0, this.at + 1), entry].slice(-MAX_ENTRIES)
    this.length = this.entries.length
    this.at = this.length - 1
  }

  undo(): T | null {
    return this.canUndo ? this.entries[--this.at] : null
  }

  redo(): T | null {
    return this.canRedo ? this.entries[++this.at] : null
  }
}
