// A number that can be dragged, changed by keys or typed: the behavior of every edge and bias in the figure.
//
// Dragging up increases the value: 60 pixels are 1, or 0.1 with Shift. Values near 0 snap to 0. Escape restores the value.

export interface DragTarget {
  get(): number
  /** Sets the value during a drag. */
  put(value: number): void
  /** Ends a change. */
  keep(): void
  /** Called on a click without a drag, or when a number is typed; `typed` is its first key. */
  open(typed?: string): void
  hold(held: boolean): void
}

const PIXELS = 60
const SNAP = 0.035
const LIMIT = 100

const clamp = (value: number): number => Math.min(LIMIT, Math.max(-LIMIT, value))
const rounded = (value: number, step: number): number => Math.round(value / step) / Math.round(1 / step)

interface Grip {
  readonly id: number
  readonly first: number
  y: number
  value: number
  moved: boolean
}

export function dragSlider(held: () => DragTarget): {
  down: (event: PointerEvent) => void
  move: (event: PointerEvent) => void
  up: (event: PointerEvent) => void
  cancel: (event: PointerEvent) => void
  key: (event: KeyboardEvent) => void
} {
  let grip: Grip | null = null

  const restore = (): void => {
    if (!grip) return
    held().put(grip.first)
    grip = null
    held().hold(false)
  }

  return {
    down(event) {
      if (event.button !== 0) return
      const value = held().get()
      grip = { id: event.pointerId, first: value, y: event.clientY, value, moved: false }
      ;(event.currentTarget as Element).setPointerCapture(event.pointerId)
      ;(event.currentTarget as SVGElement).focus({ preventScroll: true })
      event.preventDefault()
    },
    move(event) {
      if (!grip || event.pointerId !== grip.id) return
      const dy = grip.y - event.clientY
      if (!grip.moved && Math.abs(dy) < 3) return
      if (!grip.moved) held().hold(true)
      grip.moved = true
      grip.y = event.clientY
      grip.value = clamp(grip.value + (dy / PIXELS) * (event.shiftKey ? 0.1 : 1))
      const shown = rounded(grip.value, event.shiftKey ? 0.001 : 0.01)
      held().put(Math.abs(shown) < SNAP && !event.shiftKey ? 0 : shown)
    },
    up(event) {
      if (!grip || event.pointerId !== grip.id) return
      const { moved } = grip
      grip = null
      held().hold(false)
      if (moved) held().keep()
      else held().open()
    },
    cancel: restore,
    key(event) {
      const step = event.shiftKey ? 0.01 : 0.1
      const moves: Record<string, number> = {
        ArrowUp: step,
        ArrowRight: step,
        ArrowDown: -step,
        ArrowLeft: -step,
        PageUp: 1,
        PageDown: -1,
      }
      if (event.key in moves) {
        held().put(clamp(rounded(held().get() + moves[event.key], 0.001)))
        held().keep()
      } else if (event.key === 'Home') {
        held().put(0)
        held().keep()
      } else if (event.key === 'Escape' && grip) restore()
      else if (event.key === 'Enter' || event.key === ' ') held().open()
      else if (/^[\d.,−-]$/.test(event.key) && !event.ctrlKey && !event.metaKey) held().open(event.key)
      else return
      event.preventDefault()
    },
  }
}

/** Prevents a finger on the element from scrolling the page. Not all browsers apply touch-action inside an SVG. */
export function preventTouchScroll(element: Element): () => void {
  const stop = (event: Event): void => event.preventDefault()
  element.addEventListener('touchstart', stop, { passive: false })
  return () => element.removeEventListener('touchstart', stop)
}
