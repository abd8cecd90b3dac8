// Parts of the explorer without a browser: links, training, curve fits, initialization, contours.
import { describe, expect, it } from 'vitest'
import { collapseLinear } from '../engine/linearCollapse.ts'
import { countCorrect, DATASETS } from '../engine/datasets.ts'
import { fitCurve } from '../engine/curveFit.ts'
import { initialise } from '../engine/initialisation.ts'
import { clone, zeroNetwork, forwardBackward } from '../engine/network.ts'
import { gaussianMean, measuredSizes, predictedSizes } from '../engine/propagation.ts'
import { Random } from '../engine/random.ts'
import { unitHealth, Trainer, type TrainerSettings } from '../engine/trainer.ts'
import { Playground } from '../explorer/playground.svelte.ts'
import { checkDisplayOptions, defaultOptions } from '../explorer/displayOptions.ts'
import { checkSnapshot, fromHash, restoreNetwork, takeSnapshot, toHash, DEFAULT_TRAINING, type TrainingState } from '../explorer/snapshot.ts'
import { THREE_RIGHT, ALL_RIGHT } from '../explorer/songNetworks.ts'
import { signalChange } from '../explorer/signalChange.ts'
import { contour } from '../figure/outputGrid.ts'

const COURSE: TrainingState = {
  step: 7,
  random: 5,
  order: [3, 0],
  optimiser: 'adam',
  steps: 7,
  first: THREE_RIGHT.weights.map(() => 0.5),
  second: THREE_RIGHT.weights.map(() => 0.25),
  curve: [
    [0, 1],
    [7, 0.5],
  ],
}

describe('training', () => {
  it.each(['sgd', 'momentum', 'adam'] as const)('continues exactly from a link: %s', (optimiser) => {
    const playground = new Playground()
    playground.restart({ data: 'moons', hidden: [6, 4] })
    playground.changeSettings({ optimiser, rate: 0.02, batch: 32, dropout: 0.2, l2: 0.001 })
    playground.advance(2 * 37)
    const [hash, seen, step] = [toHash(playground.snapshot(), {}), playground.losses, playground.step]
    playground.advance(41)
    const again = new Playground()
    again.load(fromHash(hash)!.snapshot)
    expect([again.step, again.losses]).toEqual([step, seen.map(([at, loss]) => [at, Number(loss.toPrecision(5))])])
    again.advance(41)
    expect(again.snapshot().weights).toEqual(playground.snapshot().weights)
    expect(again.snapshot().course).toEqual({ ...playground.snapshot().course, curve: again.snapshot().course!.curve })
  })

  it('continues exactly after an undo', () => {
    const playground = new Playground()
    playground.advance(10)
    playground.commit()
    const [weights, step] = [playground.snapshot().weights, playground.step]
    playground.advance(10)
    playground.commit()
    const ahead = playground.snapshot().weights
    playground.undo()
    expect([playground.snapshot().weights, playground.step]).toEqual([weights, step])
    playground.advance(10)
    expect(playground.snapshot().weights).toEqual(ahead)
  })

  it('starts with an empty state after a change of the optimizer', () => {
    const [playground, fresh] = [new Playground(), new Playground()]
    playground.takeStep('momentum', 0.1)
    fresh.load({ ...playground.snapshot(), course: null })
    for (const one of [playground, fresh]) one.takeStep('adam', 0.1)
    expect(playground.snapshot().weights).toEqual(fresh.snapshot().weights)
    expect(playground.step).toBe(2)
  })

  it('limits the loss curve in a link after long training', () => {
    const playground = new Playground()
    for (let k = 0; k < 900; k++) playground.advance(1)
    expect(playground.snapshot().course!.curve.length).toBeLessThanOrEqual(121)
    expect(playground.snapshot().course!.curve.at(-1)![0]).toBe(900)
    expect(checkSnapshot(playground.snapshot())).toEqual(playground.snapshot())
  })

  it('does not change a loss curve that is restored', () => {
    for (const steps of [119, 120, 121, 239, 240, 600, 700]) {
      const playground = new Playground()
      for (let k = 0; k < steps; k++) playground.advance(1)
      const first = playground.snapshot()
      expect(first.course!.curve.length).toBeLessThanOrEqual(120)
      playground.restore(checkSnapshot(first))
      expect(playground.snapshot()).toEqual(first)
    }
  })

  it('stops with an entry of the history when something else is shown', () => {
    const playground = new Playground()
    const train = (): void => {
      playground.stopTraining = () => (playground.stopTraining = null, playground.commit())
      playground.advance(7)
    }
    train()
    playground.setActivation('relu')
    expect([playground.activation, playground.step, playground.canRedo]).toEqual(['relu', 0, false])
    playground.undo()
    expect([playground.activation, playground.step]).toEqual(['tanh', 7])
    train()
    playground.undo()
    expect([playground.step, playground.canRedo]).toEqual([7, true])
    playground.redo()
    expect(playground.step).toBe(14)
    train()
    playground.restart({ data: 'circles' })
    playground.undo()
    expect([playground.data.name, playground.step]).toEqual(['songs', 21])
  })

  it('takes no single step that would leave a number that is not finite', () => {
    const playground = new Playground()
    for (let k = 0; k < 80; k++) playground.takeStep('sgd', 1e6)
    expect(playground.failure).not.toBeNull()
    expect(checkSnapshot(playground.snapshot())).toEqual(playground.snapshot())
    playground.takeStep('sgd', 0)
    expect(playground.snapshot().weights.every(Number.isFinite)).toBe(true)
  })

  it('can continue with other settings after a failure', () => {
    const playground = new Playground()
    playground.restart({ data: 'songs', activation: 'leaky_relu', hidden: [8, 8] })
    playground.changeSettings({ optimiser: 'momentum', rate: 1e6, batch: 2 })
    playground.advance(500)
    expect(playground.failure).not.toBeNull()
    const before = playground.snapshot()
    playground.changeSettings({ rate: 0 })
    expect(playground.failure).toBeNull()
    expect(playground.snapshot().course!.order).toEqual(before.course?.order ?? [])
  })

  it('takes no step that would leave a number that is not finite in the optimizer state', () => {
    const playground = new Playground()
    playground.restart({ data: 'wave', activation: 'relu', hidden: [4] })
    playground.takeStep('sgd', 1e6)
    for (let k = 0; k < 3; k++) playground.takeStep('adam', 0.05)
    expect(checkSnapshot(playground.snapshot())).toEqual(playground.snapshot())
  })

  it('keeps the state before the failed step, including the optimizer state', () => {
    const playground = new Playground()
    playground.restart({ data: 'songs', activation: 'relu', hidden: [8, 8] })
    playground.changeSettings({ optimiser: 'momentum', rate: 1e6 })
    playground.advance(500)
    expect(playground.failure!.step).toBe(playground.step + 1)
    expect(checkSnapshot(playground.snapshot())).toEqual(playground.snapshot())
  })
})

describe('states', () => {
  it('are restored completely from an address', () => {
    const again = fromHash(toHash(ALL_RIGHT, { tab: 'train' }))!
    expect(again.snapshot).toEqual(ALL_RIGHT)
    expect(again.more.tab).toBe('train')
    const { data, loss, activation, training, course } = ALL_RIGHT
    expect(takeSnapshot(restoreNetwork(ALL_RIGHT), { data, loss, activation, training, course })).toEqual(ALL_RIGHT)
    expect(fromHash('')).toBeNull()
    expect(fromHash('#something')).toBeNull()
  })

  it.each([
    [null, 'no state'],
    [{ ...THREE_RIGHT, version: 4 }, 'version 4'],
    [{ ...THREE_RIGHT, version: '1' }, 'does not know its version'],
    [{ ...THREE_RIGHT, data: '__proto__' }, 'does not have its data set'],
    [{ ...THREE_RIGHT, loss: 'toString' }, 'loss'],
    [{ ...THREE_RIGHT, activation: 'eval' }, 'activation'],
    [{ ...THREE_RIGHT, widths: [2, 9, 1] }, '1 to 8 units'],
    [{ ...THREE_RIGHT, widths: [2, 0.5, 1] }, '1 to 8 units'],
    [{ ...THREE_RIGHT, widths: [3, 3, 1] }, '2 inputs'],
    [{ ...THREE_RIGHT, widths: new Array(20).fill(1) }, 'hidden layers'],
    [{ ...THREE_RIGHT, weights: [1] }, '13 weights'],
    [{ ...THREE_RIGHT, weights: THREE_RIGHT.weights.map(() => NaN) }, 'finite'],
    [{ ...THREE_RIGHT, weights: THREE_RIGHT.weights.map(String) }, 'finite'],
    [{ ...THREE_RIGHT, training: undefined }, 'does not have its initialization'],
    [{ ...THREE_RIGHT, training: { ...DEFAULT_TRAINING, optimiser: 'constructor' } }, 'optimiser'],
    [{ ...THREE_RIGHT, training: { ...DEFAULT_TRAINING, rate: -1 } }, 'rate'],
    [{ ...THREE_RIGHT, training: { ...DEFAULT_TRAINING, dropout: 1 } }, 'dropout'],
    [{ ...THREE_RIGHT, training: { ...DEFAULT_TRAINING, batch: 0.5 } }, 'batch'],
    [{ ...THREE_RIGHT, training: { ...DEFAULT_TRAINING, seed: NaN } }, 'seed'],
    [{ ...THREE_RIGHT, course: undefined }, 'invalid step'],
    [{ ...THREE_RIGHT, course: { ...COURSE, random: 2 ** 32 } }, 'invalid random'],
    [{ ...THREE_RIGHT, course: { ...COURSE, order: [4] } }, 'invalid order'],
    [{ ...THREE_RIGHT, course: { ...COURSE, optimiser: 'constructor' } }, 'invalid optimiser'],
    [{ ...THREE_RIGHT, course: { ...COURSE, steps: -1 } }, 'invalid steps'],
    [{ ...THREE_RIGHT, course: { ...COURSE, first: [1] } }, 'invalid first'],
    [{ ...THREE_RIGHT, course: { ...COURSE, second: THREE_RIGHT.weights.map(() => -1) } }, 'invalid second'],
    [{ ...THREE_RIGHT, course: { ...COURSE, curve: [[0, NaN]] } }, 'invalid curve'],
    [{ ...THREE_RIGHT, course: { ...COURSE, curve: new Array(200).fill([0, 1]) } }, 'invalid curve'],
  ])('are rejected if a part is invalid: %#', (state, why) => {
    expect(() => checkSnapshot(state)).toThrow(why)
  })

  it('of older versions get defaults for missing values', () => {
    const { training, course, ...old } = ALL_RIGHT
    expect(course).toBeNull()
    expect(checkSnapshot({ ...old, version: 1 })).toEqual({ ...ALL_RIGHT, training: DEFAULT_TRAINING })
    expect(checkSnapshot({ ...old, training: { ...DEFAULT_TRAINING, rate: 0.7 }, version: 2 })).toEqual({
      ...ALL_RIGHT,
      training: { ...DEFAULT_TRAINING, rate: 0.7 },
    })
    expect(training).toEqual(DEFAULT_TRAINING)
    const { version, ...rest } = old
    const found = fromHash(`#v1=${encodeURIComponent(JSON.stringify({ ...rest, tab: 'steps' }))}`)!
    expect([found.snapshot, found.more.tab, version]).toEqual([ALL_RIGHT, 'steps', 3])
  })

  it('of version 3 keep their keys, so that existing links load', () => {
    const link =
      '{"data":"wave","loss":"mse","activation":"tanh","training":{"scheme":"xavier","optimiser":"adam","ra' +
      'te":0.05,"batch":0,"l2":0,"dropout":0,"seed":1},"course":null,"widths":[1,3,1],"weights":[0.644,-0.3' +
      '33,0.585,-0.319,0.477,-2.009,0.387,-0.304,-0.147,0.763],"tab":"train","depth":"deep","look":{"row":0' +
      ',"unit":{"layer":1,"unit":0},"place":{"layer":1,"to":0,"from":1}},"step":8,"entry":[0,0],"stepOptimi' +
      'ser":"sgd","stepRate":0.1,"lesson":"","speed":2,"galleryZ":1,"initActivation":"tanh","initScheme":"x' +
      'avier","initLayers":12,"initSeed":1,"fitUnits":5,"fitActivation":"relu","fitCurve":"hills"}'
    const { snapshot, more } = fromHash(`#v3=${encodeURIComponent(link)}`)!
    const playground = new Playground()
    playground.load(snapshot)
    const options = { ...defaultOptions(), ...checkDisplayOptions(more) }
    playground.selection = options.look
    expect(playground.selection).toEqual({ row: 0, unit: { layer: 1, unit: 0 }, place: { layer: 1, to: 0, from: 1 } })
    expect(toHash(playground.snapshot(), { ...options, look: playground.selection })).toBe(`#v3=${encodeURIComponent(link)}`)
  })

  it('restore all display options and ignore other values', () => {
    const shown = { ...defaultOptions(), tab: 'draw', fitCurve: new Array<number>(121).fill(0.5), galleryZ: -2.5 }
    expect(checkDisplayOptions({ ...shown, weights: [1], other: 2 })).toEqual(shown)
    expect(checkDisplayOptions({})).toEqual({})
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
  ])('are rejected if a display option is invalid: %o', (part) => {
    expect(() => checkDisplayOptions({ ...defaultOptions(), ...part })).toThrow(`cannot show its ${Object.keys(part)[0]}`)
  })

  it('of the two song networks have three and four songs correct', () => {
    const songs = DATASETS.songs()
    const correct = (of: typeof THREE_RIGHT): number => countCorrect(songs, forwardBackward(restoreNetwork(of), songs.x, songs.y, 'mse').layers[1].a)
    expect([correct(THREE_RIGHT), correct(ALL_RIGHT)]).toEqual([3, 4])
  })
})

const usual: TrainerSettings = { optimiser: 'adam', rate: 0.05, batch: 0, l2: 0, dropout: 0, seed: 1 }

describe('training', () => {
  it('learns every data set of two classes', () => {
    for (const name of ['songs', 'xor', 'circles', 'moons']) {
      const data = DATASETS[name]()
      const net = zeroNetwork([2, 8, 1], 'tanh')
      initialise(net, 'xavier', 1)
      const trainer = new Trainer(net, data, data.loss, usual)
      for (let k = 0; k < 400; k++) expect(trainer.advance()).toBe(true)
      const share = countCorrect(data, forwardBackward(net, data.x, data.y, data.loss).layers[1].a) / data.y.length
      expect(share, name).toBeGreaterThan(0.94)
    }
  })

  it('runs with batches, dropout and L2', () => {
    const data = DATASETS.xor()
    const net = zeroNetwork([2, 8, 1], 'relu')
    initialise(net, 'he', 2)
    const trainer = new Trainer(net, data, data.loss, { ...usual, batch: 32, dropout: 0.5, l2: 0.01 })
    for (let k = 0; k < 200; k++) expect(trainer.advance()).toBe(true)
    expect(trainer.step).toBe(200)
  })

  it('keeps the weights before a step that is not finite, and reports the layer', () => {
    const data = DATASETS.wave()
    const net = zeroNetwork([1, 8, 1], 'relu')
    initialise(net, 'he', 1, 1)
    const trainer = new Trainer(net, data, data.loss, { ...usual, optimiser: 'sgd', rate: 50 })
    let before = clone(net)
    while (trainer.advance()) before = clone(net)
    expect(trainer.failure!.step).toBe(trainer.step + 1)
    expect(trainer.failure!.layer).toBeGreaterThan(0)
    expect(net.layers[0].W).toEqual(before.layers[0].W)
    expect(trainer.advance()).toBe(false)
  })

  it('finds dead units', () => {
    const data = DATASETS.songs()
    const net = zeroNetwork([2, 2, 1], 'relu')
    net.layers[0].b.set([-5, 5])
    const t = forwardBackward(net, data.x, data.y, 'mse')
    const states = unitHealth(net, t, [(z) => (z > 0 ? 1 : 0), () => 1])
    expect(states).toEqual([
      [
        { dead: true, saturated: false },
        { dead: false, saturated: false },
      ],
    ])
  })
})

describe('other parts', () => {
  it('collapses layers without activations to one layer with the same outputs', () => {
    const net = zeroNetwork([2, 5, 4, 1], 'identity')
    initialise(net, 'normal(1)', 3, 1)
    const data = DATASETS.xor()
    const out = forwardBackward(net, data.x, data.y, 'mse').layers[2].a
    const one = forwardBackward({ layers: [collapseLinear(net)!] }, data.x, data.y, 'mse').layers[0].a
    out.forEach((z, r) => expect(one[r]).toBeCloseTo(z, 10))
    expect(collapseLinear(zeroNetwork([2, 2, 1], 'tanh'))).toBeNull()
  })

  it('describes how the size of a signal changes', () => {
    expect([1, 0.2, 9].map(signalChange)).toEqual(['stays steady', 'stays steady', 'stays steady'])
    expect(signalChange(22)).toBe('grows by a factor of 22')
    expect(signalChange(1 / 22)).toBe('shrinks by a factor of 22')
    expect(signalChange(1e5)).toMatch(/^explodes/)
    expect(signalChange(1e-5)).toMatch(/^vanishes/)
    expect(signalChange(0)).toBe('vanishes completely')
  })

  it('predicts the measured sizes of wide layers', () => {
    expect(gaussianMean((u) => u * u)).toBeCloseTo(1, 10)
    expect(predictedSizes('relu', 'he', 64, 10).signal.every((q) => Math.abs(q - 2) < 1e-3)).toBe(true)
    const [predicted, measured] = [predictedSizes('tanh', 'xavier', 64, 8), measuredSizes('tanh', 'xavier', 64, 8, 1, 128)]
    predicted.signal.forEach((q, l) => expect(measured.signal[l] / q).toBeGreaterThan(0.5))
    predicted.signal.forEach((q, l) => expect(measured.signal[l] / q).toBeLessThan(2))
    expect(predicted.gradient[7]).toBe(1)
  })

  it('fits a curve better with more units', () => {
    const x = Float64Array.from({ length: 121 }, (_, k) => -2 + k / 30)
    for (const name of ['relu', 'sigmoid', 'tanh']) {
      const errors = [2, 8, 32].map((units) => fitCurve(name, units, x, x.map(Math.sin), x).error)
      expect(errors[1]).toBeLessThan(errors[0] / 2)
      expect(errors[2]).toBeLessThan(errors[1] / 2)
    }
  })

  it('finds the contour of a level', () => {
    expect(contour(Float64Array.from([0, 1, 0, 1]), 2, 0.25)).toEqual([[0.25, 0, 0.25, 1]])
    expect(contour(Float64Array.from([1, 1, 1, 1]), 2, 0.5)).toEqual([])
  })

  it('draws the same numbers from the same seed', () => {
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
