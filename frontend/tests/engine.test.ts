// The engine against PyTorch in float64 and ml.trace: every z, a, δ, dW, db, and 20 steps of each optimizer, to 1e-10.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, inject, it } from 'vitest'
import { activation, ACTIVATIONS } from '../engine/activations.ts'
import { SCHEMES, type Scheme } from '../engine/initialisation.ts'
import type { LossName } from '../engine/losses.ts'
import { backward, forward, computeLoss, zeroNetwork, forwardBackward, emptyTrace, type Network } from '../engine/network.ts'
import { newOptimiserState, optimiserStep, type OptimiserName } from '../engine/optimisers.ts'
import { InferenceNetwork } from '../engine/inference.ts'
import type { Spec } from '../engine/layer.ts'
import { predictedSizes } from '../engine/propagation.ts'

type Nested = number | Nested[]

interface Step {
  name: string
  kind: string
  y: Nested
  dy: Nested
  dx: Nested
  gradients: Record<string, Nested>
}

interface Case {
  text: string
  activation: string
  widths: number[]
  loss: LossName
  optimiser: OptimiserName
  rate: number
  x: Nested
  y: Nested
  weights: Record<string, Nested>
  after: Record<string, Nested> | null
  trace: { loss: number; rows: number[]; steps: Step[] }
}

interface Typed {
  text: string
  spec: Spec
  tensors: Record<string, Nested>
  x: number[][]
  codes: number[][] | null
  y: number[][]
  output: Nested
  steps: Step[]
}

const flat = (values: Nested): Float64Array => Float64Array.from([values].flat(Infinity as 1) as number[])
const golden = JSON.parse(readFileSync(join(inject('folder'), 'golden.json'), 'utf8')) as {
  dense: Case[]
  programs: Typed[]
  depths: { scheme: Scheme; activation: string; std: number[]; signal: number[]; gradient: number[] }[]
}

/** Asserts agreement to 1e-10, relative for numbers larger than 1. */
function same(values: ArrayLike<number>, reference: Nested, what: string): void {
  const expected = flat(reference)
  expect(values.length, what).toBe(expected.length)
  for (let k = 0; k < expected.length; k++) {
    const gap = Math.abs(values[k] - expected[k]) / Math.max(1, Math.abs(expected[k]))
    if (!(gap <= 1e-10)) expect.fail(`${what}[${k}] must be ${expected[k]} as in Python, got ${values[k]}`)
  }
}

function filled(of: Case): Network {
  const net = zeroNetwork(of.widths, of.activation)
  net.layers.forEach((layer, l) => {
    layer.W.set(flat(of.weights[`linear${l + 1}.weight`]))
    layer.b.set(flat(of.weights[`linear${l + 1}.bias`]))
  })
  return net
}

describe('dense networks', () => {
  it('has two hundred networks and every activation', () => {
    expect(golden.dense.length).toBeGreaterThanOrEqual(200)
    const absent = ACTIVATIONS.filter((name) => !golden.dense.some((c) => c.activation === name))
    expect(absent).toEqual(['sqrt']) // sqrt is NaN below 0, so random networks do not use it
    expect(activation('sqrt').f(2.25)).toBe(1.5)
    expect(activation('sqrt').df(0.25)).toBe(1)
    expect(activation('sqrt').f(-1)).toBeNaN()
  })

  it.each(golden.dense.map((c, i) => [i, c.text, c] as const))('%i %s: one pass', (_, __, c) => {
    const net = filled(c)
    const t = forwardBackward(net, flat(c.x), flat(c.y), c.loss)
    same([t.loss], c.trace.loss, 'loss')
    same(t.rowLoss, c.trace.rows, 'loss of rows')
    net.layers.forEach((_, l) => {
      const linear = c.trace.steps.find((s) => s.name === `linear${l + 1}`)!
      same(t.layers[l].z, linear.y, `z${l + 1}`)
      same(t.layers[l].delta, linear.dy, `δ${l + 1}`)
      same(t.layers[l].dW, linear.gradients.weight, `dW${l + 1}`)
      same(t.layers[l].db, linear.gradients.bias, `db${l + 1}`)
      same(l ? t.layers[l - 1].dA : t.dX, linear.dx, `dA${l}`)
      const after = c.trace.steps.find((s) => s.kind === c.activation && s.name === `${c.activation}${l + 1}`)
      if (after && l < net.layers.length - 1) same(t.layers[l].a, after.y, `a${l + 1}`)
    })
  })

  it.each(golden.dense.filter((c) => c.after).map((c, i) => [i, c.text, c.optimiser, c] as const))(
    '%i %s: 20 steps of %s',
    (_, __, ___, c) => {
      const net = filled(c)
      const kept = newOptimiserState(net)
      const t = emptyTrace(net, flat(c.x).length / c.widths[0])
      for (let step = 0; step < 20; step++) {
        forward(net, flat(c.x), t)
        computeLoss(net, flat(c.y), t, c.loss)
        backward(net, flat(c.y), t, c.loss)
        optimiserStep(net, t, kept, c.optimiser, c.rate)
      }
      net.layers.forEach((layer, l) => {
        same(layer.W, c.after![`linear${l + 1}.weight`], `W${l + 1}`)
        same(layer.b, c.after![`linear${l + 1}.bias`], `b${l + 1}`)
      })
    },
  )
})

describe('other kinds of layer', () => {
  it.each(golden.programs.map((c) => [c.text, c] as const))('%s', (_, c) => {
    const tensors = Object.fromEntries(Object.entries(c.tensors).map(([name, v]) => [name, flat(v)]))
    const inference = new InferenceNetwork(c.spec, tensors)
    const B = c.x.length
    const x = flat(c.x.map((row, r) => [...row, ...(c.codes?.[r] ?? [])]))
    const values = inference.run(x, B)
    same(values[values.length - 1], c.output, 'output')
    const out = flat(c.output)
    const dOut = out.map((z, k) => (2 * (z - flat(c.y)[k])) / (out.length / B) / B)
    const back = inference.back(values, dOut, B)
    inference.layers.forEach((op, l) => {
      const step = c.steps.find((s) => s.name === op.name)!
      same(values[l + 1], step.y, op.name)
      // The gradient of the input of a block is the sum over the block and its skip connection.
      const block = inference.layers.filter((other) => other.skip === l).at(-1)
      const { dx, dy } = block ? c.steps.find((s) => s.name === block.name)! : step
      if (op.kind !== 'columns') same(back[l], op.skip === undefined || block ? dx : dy, `∂L/∂x of ${op.name}`)
    })
    expect(inference.layers.length).toBe(c.steps.length)
    for (const [l, op] of inference.layers.entries()) {
      if (!op.linear) continue
      inference.nudge(values, B, l, op.nOut - 1, 0, 0.21)
      if (op.linear.b) inference.nudge(values, B, l, 0, -1, -0.4)
      const whole = inference.run(x, B)
      whole.forEach((expected, k) => same(values[k], Array.from(expected), `${op.name} dragged, values ${k}`))
    }
  })
})

describe('initial weights', () => {
  const table = JSON.parse(
    readFileSync(join(import.meta.dirname, '../../tests/golden/init_schemes.json'), 'utf8'),
  ) as { scheme: Scheme; n_in: number; n_out: number; variance: number }[]

  it.each(table)('of $scheme have the variance that Python gives a layer $n_in-$n_out', (row) => {
    expect(SCHEMES[row.scheme](row.n_in, row.n_out)).toBeCloseTo(row.variance, 14)
  })

  it('has a row of the table for every scheme', () => {
    expect(new Set(table.map((row) => row.scheme))).toEqual(new Set(Object.keys(SCHEMES)))
  })

  it.each(golden.depths)('of $scheme with $activation give the sizes that Python predicts', (row) => {
    const found = predictedSizes(row.activation, row.scheme, 64, row.std.length)
    for (const std of row.std) expect(Math.sqrt(SCHEMES[row.scheme](64, 64))).toBeCloseTo(std, 12)
    // At a kink, the error of the page's midpoint rule is about the square of its step, 0.011.
    row.signal.forEach((q, l) => expect(found.signal[l] / q).toBeCloseTo(1, 3))
    row.gradient.forEach((g, l) => expect(found.gradient[l] / g).toBeCloseTo(1, 3))
  })
})
