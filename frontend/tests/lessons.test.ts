// Every lesson, trained as the page trains it, shows what its text says.
import { describe, expect, it } from 'vitest'
import { activation } from '../engine/activations.ts'
import { correct } from '../engine/datasets.ts'
import type { Network, Trace } from '../engine/network.ts'
import { pass } from '../engine/network.ts'
import { health, Trainer, type Health } from '../engine/trainer.ts'
import { Lab } from '../explorer/playground.svelte.ts'
import { PRESETS } from '../explorer/lessons.ts'

const size = (values: Float64Array): number => Math.sqrt(values.reduce((sum, v) => sum + v * v, 0) / values.length)

/** A lesson with its trainer; `seen` is the whole data through the network as it is. */
function lesson(name: string): { lab: Lab; trainer: Trainer; run: (steps: number) => void; seen: () => Trace } {
  const lab = new Lab()
  lab.start(PRESETS.find((preset) => preset.name === name)!.choices)
  const trainer = new Trainer(lab.net, lab.data, lab.loss, lab.settings)
  return {
    lab,
    trainer,
    run: (steps) => {
      for (let k = 0; k < steps && trainer.advance(); k++);
    },
    seen: () => pass(lab.net, lab.data.x, lab.data.y, lab.loss),
  }
}
const outputs = (t: Trace): Float64Array => t.layers.at(-1)!.a
const states = (net: Network, t: Trace): Health[][] =>
  health(
    net,
    t,
    net.layers.map((layer) => activation(layer.activation).df),
  )

describe('lessons', () => {
  it('are all told here', () => {
    expect(PRESETS.map((preset) => preset.name)).toEqual([
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
    const { lab, run, seen } = lesson('learn')
    expect(lab.widths).toEqual([2, 8, 1])
    run(300)
    expect(correct(lab.data, outputs(seen()))).toBe(4)
  })

  it('collapse: every song at 0.50, for any number of layers', () => {
    for (const hidden of [[8], [8, 8], [4, 4, 4]]) {
      const { lab } = lesson('collapse')
      lab.start({ hidden })
      const trainer = new Trainer(lab.net, lab.data, lab.loss, lab.settings)
      for (let k = 0; k < 2000; k++) trainer.advance()
      for (const z of outputs(pass(lab.net, lab.data.x, lab.data.y, lab.loss))) expect(z).toBeCloseTo(0.5, 2)
      expect(lab.whole).not.toBeNull()
    }
  })

  it('zero: nothing but the last bias moves', () => {
    const { lab, run } = lesson('zero')
    run(500)
    const [first, last] = lab.net.layers
    for (const part of [first.W, first.b, last.W]) expect(part.every((w) => w === 0)).toBe(true)
    expect(last.b[0]).toBeCloseTo(0.5, 6)
  })

  it('vanish: hardly any gradient reaches the first of six sigmoids, and far more with ReLU', () => {
    const { lab, run, seen } = lesson('vanish')
    run(50)
    const share = (t: Trace): number => size(t.layers[0].dW) / size(t.layers.at(-1)!.dW)
    const sigmoid = share(seen())
    expect(sigmoid).toBeLessThan(1e-3) // six slopes of at most a quarter are 2·10⁻⁴
    lab.setActivation('relu')
    expect(share(lab.trace)).toBeGreaterThan(100 * sigmoid)
  })

  it('dead: units that no row reaches, and that never come back', () => {
    const { lab, run, seen } = lesson('dead')
    expect(states(lab.net, seen())[0].some((unit) => unit.dead)).toBe(false)
    run(60)
    const dead = states(lab.net, seen())[0].map((unit) => unit.dead)
    expect(dead.filter(Boolean).length).toBeGreaterThanOrEqual(3)
    run(600)
    const later = states(lab.net, seen())[0].map((unit) => unit.dead)
    dead.forEach((was, o) => expect(was && !later[o]).toBe(false))
  })

  it('blow: the loss grows until it is no number, and the step and layer are named', () => {
    const { trainer, run, seen } = lesson('blow')
    const first = seen().loss
    run(5)
    expect(seen().loss).toBeGreaterThan(10 * first)
    run(5000)
    expect(trainer.failure).toMatchObject({ step: trainer.step + 1 })
  })

  it('spirals: the boundary bends around both arms', () => {
    const { lab, run, seen } = lesson('spirals')
    run(4000)
    expect(correct(lab.data, outputs(seen())) / lab.data.y.length).toBeGreaterThan(0.95)
  })
})
