// Every lesson, trained like on the page, shows the effect that its text describes.
import { describe, expect, it } from 'vitest'
import { activation } from '../engine/activations.ts'
import { countCorrect } from '../engine/datasets.ts'
import type { Network, Trace } from '../engine/network.ts'
import { forwardBackward } from '../engine/network.ts'
import { unitHealth, Trainer, type UnitHealth } from '../engine/trainer.ts'
import { Playground } from '../explorer/playground.svelte.ts'
import { LESSONS } from '../explorer/lessons.ts'

const size = (values: Float64Array): number => Math.sqrt(values.reduce((sum, v) => sum + v * v, 0) / values.length)

/** A lesson with its trainer. `seen` runs all data through the current network. */
function lesson(name: string): { playground: Playground; trainer: Trainer; run: (steps: number) => void; seen: () => Trace } {
  const playground = new Playground()
  playground.restart(LESSONS.find((preset) => preset.name === name)!.choices)
  const trainer = new Trainer(playground.net, playground.data, playground.loss, playground.settings)
  return {
    playground,
    trainer,
    run: (steps) => {
      for (let k = 0; k < steps && trainer.advance(); k++);
    },
    seen: () => forwardBackward(playground.net, playground.data.x, playground.data.y, playground.loss),
  }
}
const outputs = (t: Trace): Float64Array => t.layers.at(-1)!.a
const states = (net: Network, t: Trace): UnitHealth[][] =>
  unitHealth(
    net,
    t,
    net.layers.map((layer) => activation(layer.activation).df),
  )

describe('lessons', () => {
  it('all have a test here', () => {
    expect(LESSONS.map((preset) => preset.name)).toEqual([
      'learn',
      'collapse',
      'zero',
      'vanish',
      'dead',
      'blow',
      'spirals',
    ])
  })

  it('learn: all four songs within a few hundred steps', () => {
    const { playground, run, seen } = lesson('learn')
    expect(playground.widths).toEqual([2, 8, 1])
    run(300)
    expect(countCorrect(playground.data, outputs(seen()))).toBe(4)
  })

  it('collapse: every song at 0.50, for any number of layers', () => {
    for (const hidden of [[8], [8, 8], [4, 4, 4]]) {
      const { playground } = lesson('collapse')
      playground.restart({ hidden })
      const trainer = new Trainer(playground.net, playground.data, playground.loss, playground.settings)
      for (let k = 0; k < 2000; k++) trainer.advance()
      for (const z of outputs(forwardBackward(playground.net, playground.data.x, playground.data.y, playground.loss))) expect(z).toBeCloseTo(0.5, 2)
      expect(playground.collapsedLayer).not.toBeNull()
    }
  })

  it('zero: only the last bias changes', () => {
    const { playground, run } = lesson('zero')
    run(500)
    const [first, last] = playground.net.layers
    for (const part of [first.W, first.b, last.W]) expect(part.every((w) => w === 0)).toBe(true)
    expect(last.b[0]).toBeCloseTo(0.5, 6)
  })

  it('vanish: the gradient of the first of six sigmoid layers is tiny, and far larger with ReLU', () => {
    const { playground, run, seen } = lesson('vanish')
    run(50)
    const share = (t: Trace): number => size(t.layers[0].dW) / size(t.layers.at(-1)!.dW)
    const sigmoid = share(seen())
    expect(sigmoid).toBeLessThan(1e-3) // six slopes of at most 0.25 multiply to 2·10⁻⁴
    playground.setActivation('relu')
    expect(share(playground.trace)).toBeGreaterThan(100 * sigmoid)
  })

  it('dead: several units die and never recover', () => {
    const { playground, run, seen } = lesson('dead')
    expect(states(playground.net, seen())[0].some((unit) => unit.dead)).toBe(false)
    run(60)
    const dead = states(playground.net, seen())[0].map((unit) => unit.dead)
    expect(dead.filter(Boolean).length).toBeGreaterThanOrEqual(3)
    run(600)
    const later = states(playground.net, seen())[0].map((unit) => unit.dead)
    dead.forEach((was, o) => expect(was && !later[o]).toBe(false))
  })

  it('blow: the loss grows until it is not finite, and training stops before that step', () => {
    const { trainer, run, seen } = lesson('blow')
    const first = seen().loss
    run(5)
    expect(seen().loss).toBeGreaterThan(10 * first)
    run(5000)
    expect(trainer.failure).toMatchObject({ step: trainer.step + 1 })
  })

  it('spirals: more than 95 % of the rows are correct', () => {
    const { playground, run, seen } = lesson('spirals')
    run(4000)
    expect(countCorrect(playground.data, outputs(seen())) / playground.data.y.length).toBeGreaterThan(0.95)
  })
})
