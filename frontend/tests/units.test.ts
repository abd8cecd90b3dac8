// What the page is built of, without a page: numbers as text, links, training, fits, variances, contours.
import { describe, expect, it } from 'vitest'
import { collapsed } from '../engine/linearCollapse.ts'
import { correct, DATA } from '../engine/datasets.ts'
import { fitted } from '../engine/curveFit.ts'
import { initialise } from '../engine/initialisation.ts'
import { clone, network, pass } from '../engine/network.ts'
import { expectation, measured, predicted } from '../engine/propagation.ts'
import { Random } from '../engine/random.ts'
import { health, Trainer, type Settings } from '../engine/trainer.ts'
import { Lab } from '../explorer/playground.svelte.ts'
import { checkedShown, start } from '../explorer/displayOptions.ts'
import { checked, fromHash, restored, taken, toHash, USUAL, type Course } from '../explorer/snapshot.ts'
import { FIRST, SOLVED } from '../explorer/songNetworks.ts'
import { signalChange } from '../explorer/signalChange.ts'
import { contour } from '../figure/outputGrid.ts'
import { bytes, exact, fixed, grouped, parsed, power, signed, significant, within } from '../shared/format.ts'

describe('numbers as text', () => {
  it('reads what people type', () => {
    const read: [string, number | null][] = [
      ['1/3', 1 / 3],
      ['0,5', 0.5],
      ['−2', -2],
      [' 1e-3 ', 1e-3],
      ['.5', 0.5],
      ['3.', 3],
      ['1/0', null],
      ['', null],
      ['two', null],
      ['1 2', null],
      ['1e999', null],
    ]
    for (const [text, value] of read) expect(parsed(text), text).toBe(value)
  })

  it('writes them', () => {
    expect(fixed(-0.001)).toBe('0.00')
    expect(fixed(-1.005, 1)).toBe('−1.0')
    expect([fixed(NaN), fixed(Infinity), fixed(-Infinity)]).toEqual(['NaN', '∞', '−∞'])
    expect(signed(0.5)).toBe('+0.50')
    expect(signed(0.001)).toBe('0.00')
    expect(significant(1234.5678, 3)).toBe('1230')
    expect(power(-1.5e-7)).toBe('−1.5·10⁻⁷')
    expect(power(Infinity)).toBe('∞')
    expect(grouped(1234567)).toBe('1,234,567')
    expect(bytes(14336)).toBe('14.3 kB')
    expect([0, 540, -3.55271e-15, 0.123456789, 1234567.891].map((v) => within(v, 8))).toEqual([
      '0',
      '540',
      '−3.6e−15',
      '0.123457',
      '1234568',
    ])
    expect(parsed(exact(-0.1 - 0.2))).toBe(-0.1 - 0.2)
  })
})

const COURSE: Course = {
  step: 7,
  random: 5,
  order: [3, 0],
  optimiser: 'adam',
  steps: 7,
  first: FIRST.weights.map(() => 0.5),
  second: FIRST.weights.map(() => 0.25),
  curve: [
    [0, 1],
    [7, 0.5],
  ],
}

describe('training', () => {
  it.each(['sgd', 'momentum', 'adam'] as const)('goes on from a link as if nothing had come between: %s', (optimiser) => {
    const lab = new Lab()
    lab.start({ data: 'moons', hidden: [6, 4] })
    lab.change({ optimiser, rate: 0.02, batch: 32, dropout: 0.2, l2: 0.001 })
    lab.advance(2 * 37)
    const [hash, seen, step] = [toHash(lab.snapshot(), {}), lab.losses, lab.step]
    lab.advance(41)
    const again = new Lab()
    again.load(fromHash(hash)!.snapshot)
    expect([again.step, again.losses]).toEqual([step, seen.map(([at, loss]) => [at, Number(loss.toPrecision(5))])])
    again.advance(41)
    expect(again.snapshot().weights).toEqual(lab.snapshot().weights)
    expect(again.snapshot().course).toEqual({ ...lab.snapshot().course, curve: again.snapshot().course!.curve })
  })

  it('goes on after an undo from where it was', () => {
    const lab = new Lab()
    lab.advance(10)
    lab.keep()
    const [weights, step] = [lab.snapshot().weights, lab.step]
    lab.advance(10)
    lab.keep()
    const ahead = lab.snapshot().weights
    lab.undo()
    expect([lab.snapshot().weights, lab.step]).toEqual([weights, step])
    lab.advance(10)
    expect(lab.snapshot().weights).toEqual(ahead)
  })

  it('starts another optimiser with an empty memory', () => {
    const [lab, fresh] = [new Lab(), new Lab()]
    lab.take('momentum', 0.1)
    fresh.load({ ...lab.snapshot(), course: null })
    for (const one of [lab, fresh]) one.take('adam', 0.1)
    expect(lab.snapshot().weights).toEqual(fresh.snapshot().weights)
    expect(lab.step).toBe(2)
  })

  it('keeps a link small, however long it went on', () => {
    const lab = new Lab()
    for (let k = 0; k < 900; k++) lab.advance(1)
    expect(lab.snapshot().course!.curve.length).toBeLessThanOrEqual(121)
    expect(lab.snapshot().course!.curve.at(-1)![0]).toBe(900)
    expect(checked(lab.snapshot())).toEqual(lab.snapshot())
  })

  it('keeps a curve as it is however often it is restored', () => {
    for (const steps of [119, 120, 121, 239, 240, 600, 700]) {
      const lab = new Lab()
      for (let k = 0; k < steps; k++) lab.advance(1)
      const first = lab.snapshot()
      expect(first.course!.curve.length).toBeLessThanOrEqual(120)
      lab.show(checked(first))
      expect(lab.snapshot()).toEqual(first)
    }
  })

  it('that is going on ends as an entry of its own when something else is shown', () => {
    const lab = new Lab()
    const train = (): void => {
      lab.stop = () => (lab.stop = null, lab.keep())
      lab.advance(7)
    }
    train()
    lab.setActivation('relu')
    expect([lab.activation, lab.step, lab.canRedo]).toEqual(['relu', 0, false])
    lab.undo()
    expect([lab.activation, lab.step]).toEqual(['tanh', 7])
    train()
    lab.undo()
    expect([lab.step, lab.canRedo]).toEqual([7, true])
    lab.redo()
    expect(lab.step).toBe(14)
    train()
    lab.start({ data: 'circles' })
    lab.undo()
    expect([lab.data.name, lab.step]).toEqual(['songs', 21])
  })

  it('by hand takes no step that would leave a number that is not finite', () => {
    const lab = new Lab()
    for (let k = 0; k < 80; k++) lab.take('sgd', 1e6)
    expect(lab.failure).not.toBeNull()
    expect(checked(lab.snapshot())).toEqual(lab.snapshot())
    lab.take('sgd', 0)
    expect(lab.snapshot().weights.every(Number.isFinite)).toBe(true)
  })

  it('may go on with other settings after it failed', () => {
    const lab = new Lab()
    lab.start({ data: 'songs', activation: 'leaky_relu', hidden: [8, 8] })
    lab.change({ optimiser: 'momentum', rate: 1e6, batch: 2 })
    lab.advance(500)
    expect(lab.failure).not.toBeNull()
    const before = lab.snapshot()
    lab.change({ rate: 0 })
    expect(lab.failure).toBeNull()
    expect(lab.snapshot().course!.order).toEqual(before.course?.order ?? [])
  })

  it('does not go on where only the optimiser would remember what is not finite', () => {
    const lab = new Lab()
    lab.start({ data: 'wave', activation: 'relu', hidden: [4] })
    lab.take('sgd', 1e6)
    for (let k = 0; k < 3; k++) lab.take('adam', 0.05)
    expect(checked(lab.snapshot())).toEqual(lab.snapshot())
  })

  it('that failed stands before the step that failed, memory and all', () => {
    const lab = new Lab()
    lab.start({ data: 'songs', activation: 'relu', hidden: [8, 8] })
    lab.change({ optimiser: 'momentum', rate: 1e6 })
    lab.advance(500)
    expect(lab.failure!.step).toBe(lab.step + 1)
    expect(checked(lab.snapshot())).toEqual(lab.snapshot())
  })
})

describe('states', () => {
  it('come back whole from an address', () => {
    const again = fromHash(toHash(SOLVED, { tab: 'train' }))!
    expect(again.snapshot).toEqual(SOLVED)
    expect(again.more.tab).toBe('train')
    const { data, loss, activation, training, course } = SOLVED
    expect(taken(restored(SOLVED), { data, loss, activation, training, course })).toEqual(SOLVED)
    expect(fromHash('')).toBeNull()
    expect(fromHash('#something')).toBeNull()
  })

  it.each([
    [null, 'not a state'],
    [{ ...FIRST, version: 4 }, 'version 4'],
    [{ ...FIRST, version: '1' }, 'no version'],
    [{ ...FIRST, data: '__proto__' }, 'data this page does not have'],
    [{ ...FIRST, loss: 'toString' }, 'loss'],
    [{ ...FIRST, activation: 'eval' }, 'activation'],
    [{ ...FIRST, widths: [2, 9, 1] }, '1 to 8 units'],
    [{ ...FIRST, widths: [2, 0.5, 1] }, '1 to 8 units'],
    [{ ...FIRST, widths: [3, 3, 1] }, '2 inputs'],
    [{ ...FIRST, widths: new Array(20).fill(1) }, 'hidden layers'],
    [{ ...FIRST, weights: [1] }, '13 weights'],
    [{ ...FIRST, weights: FIRST.weights.map(() => NaN) }, 'finite'],
    [{ ...FIRST, weights: FIRST.weights.map(String) }, 'finite'],
    [{ ...FIRST, training: undefined }, 'first weights'],
    [{ ...FIRST, training: { ...USUAL, optimiser: 'constructor' } }, 'optimiser'],
    [{ ...FIRST, training: { ...USUAL, rate: -1 } }, 'rate'],
    [{ ...FIRST, training: { ...USUAL, dropout: 1 } }, 'dropout'],
    [{ ...FIRST, training: { ...USUAL, batch: 0.5 } }, 'batch'],
    [{ ...FIRST, training: { ...USUAL, seed: NaN } }, 'seed'],
    [{ ...FIRST, course: undefined }, 'wrong step'],
    [{ ...FIRST, course: { ...COURSE, random: 2 ** 32 } }, 'wrong random'],
    [{ ...FIRST, course: { ...COURSE, order: [4] } }, 'wrong order'],
    [{ ...FIRST, course: { ...COURSE, optimiser: 'constructor' } }, 'wrong optimiser'],
    [{ ...FIRST, course: { ...COURSE, steps: -1 } }, 'wrong steps'],
    [{ ...FIRST, course: { ...COURSE, first: [1] } }, 'wrong first'],
    [{ ...FIRST, course: { ...COURSE, second: FIRST.weights.map(() => -1) } }, 'wrong second'],
    [{ ...FIRST, course: { ...COURSE, curve: [[0, NaN]] } }, 'wrong curve'],
    [{ ...FIRST, course: { ...COURSE, curve: new Array(200).fill([0, 1]) } }, 'wrong curve'],
  ])('are refused where they are not whole: %#', (state, why) => {
    expect(() => checked(state)).toThrow(why)
  })

  it('of older versions are taken, with what they did not have', () => {
    const { training, course, ...old } = SOLVED
    expect(course).toBeNull()
    expect(checked({ ...old, version: 1 })).toEqual({ ...SOLVED, training: USUAL })
    expect(checked({ ...old, training: { ...USUAL, rate: 0.7 }, version: 2 })).toEqual({
      ...SOLVED,
      training: { ...USUAL, rate: 0.7 },
    })
    expect(training).toEqual(USUAL)
    const { version, ...rest } = old
    const found = fromHash(`#v1=${encodeURIComponent(JSON.stringify({ ...rest, tab: 'steps' }))}`)!
    expect([found.snapshot, found.more.tab, version]).toEqual([SOLVED, 'steps', 3])
  })

  it('of the page come back whole', () => {
    const shown = { ...start(), tab: 'draw', fitCurve: new Array<number>(121).fill(0.5), galleryZ: -2.5 }
    expect(checkedShown({ ...shown, weights: [1], other: 2 })).toEqual(shown)
    expect(checkedShown({})).toEqual({})
  })

  it.each([
    { depth: 'constructor' },
    { step: -1 },
    { step: 0.5 },
    { entry: [0] },
    { stepOptimiser: 'toString' },
    { stepRate: Infinity },
    { lesson: '<b>' },
    { speed: 1e9 },
    { galleryZ: '1' },
    { initLayers: 1e9 },
    { initScheme: 'none' },
    { fitUnits: 41 },
    { fitActivation: 'gelu' },
    { fitCurve: 'spirals' },
    { fitCurve: [1, 2] },
    { fitCurve: new Array<number>(121).fill(NaN) },
    { look: null },
    { look: { row: 0, unit: {}, place: null } },
    { look: { row: 0, unit: null, place: { layer: 0, to: 0, from: -2 } } },
  ])('of the page are refused where they are not its own: %o', (part) => {
    expect(() => checkedShown({ ...start(), ...part })).toThrow(`its ${Object.keys(part)[0]} is not one`)
  })

  it('start with three songs right, and can have four', () => {
    const songs = DATA.songs()
    const right = (of: typeof FIRST): number => correct(songs, pass(restored(of), songs.x, songs.y, 'mse').layers[1].a)
    expect([right(FIRST), right(SOLVED)]).toEqual([3, 4])
  })
})

const usual: Settings = { optimiser: 'adam', rate: 0.05, batch: 0, l2: 0, dropout: 0, seed: 1 }

describe('training', () => {
  it('learns every set of two classes', () => {
    for (const name of ['songs', 'xor', 'circles', 'moons']) {
      const data = DATA[name]()
      const net = network([2, 8, 1], 'tanh')
      initialise(net, 'xavier', 1)
      const trainer = new Trainer(net, data, data.loss, usual)
      for (let k = 0; k < 400; k++) expect(trainer.advance()).toBe(true)
      const share = correct(data, pass(net, data.x, data.y, data.loss).layers[1].a) / data.y.length
      expect(share, name).toBeGreaterThan(0.94)
    }
  })

  it('takes each row once an epoch, and drops units in hidden layers alone', () => {
    const data = DATA.xor()
    const net = network([2, 8, 1], 'relu')
    initialise(net, 'he', 2)
    const trainer = new Trainer(net, data, data.loss, { ...usual, batch: 32, dropout: 0.5, l2: 0.01 })
    for (let k = 0; k < 200; k++) expect(trainer.advance()).toBe(true)
    expect(trainer.step).toBe(200)
  })

  it('leaves the weights as they were before a step that is not finite, and says where', () => {
    const data = DATA.wave()
    const net = network([1, 8, 1], 'relu')
    initialise(net, 'he', 1, 1)
    const trainer = new Trainer(net, data, data.loss, { ...usual, optimiser: 'sgd', rate: 50 })
    let before = clone(net)
    while (trainer.advance()) before = clone(net)
    expect(trainer.failure!.step).toBe(trainer.step + 1)
    expect(trainer.failure!.layer).toBeGreaterThan(0)
    expect(net.layers[0].W).toEqual(before.layers[0].W)
    expect(trainer.advance()).toBe(false)
  })

  it('finds units that no row moves', () => {
    const data = DATA.songs()
    const net = network([2, 2, 1], 'relu')
    net.layers[0].b.set([-5, 5])
    const t = pass(net, data.x, data.y, 'mse')
    const states = health(net, t, [(z) => (z > 0 ? 1 : 0), () => 1])
    expect(states).toEqual([
      [
        { dead: true, saturated: false },
        { dead: false, saturated: false },
      ],
    ])
  })
})

describe('the rest', () => {
  it('collapses layers without activations to one that says the same', () => {
    const net = network([2, 5, 4, 1], 'identity')
    initialise(net, 'normal(1)', 3, 1)
    const data = DATA.xor()
    const out = pass(net, data.x, data.y, 'mse').layers[2].a
    const one = pass({ layers: [collapsed(net)!] }, data.x, data.y, 'mse').layers[0].a
    out.forEach((z, r) => expect(one[r]).toBeCloseTo(z, 10))
    expect(collapsed(network([2, 2, 1], 'tanh'))).toBeNull()
  })

  it('calls a signal steady only if it keeps its size', () => {
    expect([1, 0.2, 9].map(signalChange)).toEqual(['stays steady', 'stays steady', 'stays steady'])
    expect(signalChange(22)).toBe('grows 22 times')
    expect(signalChange(1 / 22)).toBe('shrinks to 1/22 of it')
    expect(signalChange(1e5)).toMatch(/^explodes/)
    expect(signalChange(1e-5)).toMatch(/^vanishes/)
    expect(signalChange(0)).toBe('vanishes completely')
  })

  it('predicts what is measured of wide layers', () => {
    expect(expectation((u) => u * u)).toBeCloseTo(1, 10)
    expect(predicted('relu', 'he', 64, 10).signal.every((q) => Math.abs(q - 2) < 1e-3)).toBe(true)
    const [wanted, found] = [predicted('tanh', 'xavier', 64, 8), measured('tanh', 'xavier', 64, 8, 1, 128)]
    wanted.signal.forEach((q, l) => expect(found.signal[l] / q).toBeGreaterThan(0.5))
    wanted.signal.forEach((q, l) => expect(found.signal[l] / q).toBeLessThan(2))
    expect(wanted.gradient[7]).toBe(1)
  })

  it('comes nearer to a curve with more units', () => {
    const x = Float64Array.from({ length: 121 }, (_, k) => -2 + k / 30)
    for (const name of ['relu', 'sigmoid', 'tanh']) {
      const errors = [2, 8, 32].map((units) => fitted(name, units, x, x.map(Math.sin), x).error)
      expect(errors[1]).toBeLessThan(errors[0] / 2)
      expect(errors[2]).toBeLessThan(errors[1] / 2)
    }
  })

  it('finds where values cross a level', () => {
    expect(contour(Float64Array.from([0, 1, 0, 1]), 2, 0.25)).toEqual([[0.25, 0, 0.25, 1]])
    expect(contour(Float64Array.from([1, 1, 1, 1]), 2, 0.5)).toEqual([])
  })

  it('draws the same from the same seed', () => {
    const draw = (seed: number): number[] =>
      Array.from(
        { length: 5 },
        (
          (r) => () =>
            r.normal()
        )(new Random(seed)),
      )
    expect(draw(3)).toEqual(draw(3))
    expect(draw(3)).not.toEqual(draw(4))
    expect(new Random(1).order(50).sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, i) => i))
  })
})
