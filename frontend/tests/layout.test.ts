// Allowed imports between folders: engine and shared come first, then figure, then the two pages, which are independent.
import { describe, expect, it } from 'vitest'
import { browserUseInEngine, forbiddenImports, importCycles, readSources, type Sources } from './layout.ts'

const sources = readSources(`${import.meta.dirname}/..`)
const planted = (path: string, text: string): Sources => new Map([...sources, [path, text]])

describe('imports between folders', () => {
  it('follow the order of the folders', () => {
    expect(sources.size).toBeGreaterThan(80)
    expect(forbiddenImports(sources)).toEqual([])
  })

  it('have no cycle, including imports of types', () => {
    expect(importCycles(sources)).toEqual([])
  })

  it('keep browser and Node code out of the engine', () => {
    expect(browserUseInEngine(sources)).toEqual([])
  })
})

describe('a planted violation is reported', () => {
  it.each([
    ['figure/Planted.svelte', "import Explorer from '../explorer/Explorer.svelte'", 'explorer/Explorer.svelte'],
    ['figure/planted.ts', "import type { Report } from '../report/types.ts'", 'report/types.ts'],
    ['shared/planted.ts', 'import { layout } from "../figure/layout.ts"', 'figure/layout.ts'],
    ['shared/planted.ts', "export * from '../engine/data.ts'", 'engine/data.ts'],
    ['engine/planted.ts', "import { fixed } from '../shared/format.ts'", 'shared/format.ts'],
    ['engine/planted.ts', "import { scaleLinear } from 'd3-scale'", 'package:d3-scale'],
    ['engine/planted.ts', "import '../tests/setup.ts'", 'tests/setup.ts'],
    ['explorer/panels/Planted.svelte', "const page = import('../../report/main.ts')", 'report/main.ts'],
    ['report/parts/Planted.svelte', "import {\n  a,\n} from '../../explorer/page.ts'", 'explorer/page.ts'],
  ])('%s: %s', (path, text, to) => {
    const found = forbiddenImports(planted(path, text))
    expect(found).toEqual([`${path} imports ${to}`])
  })

  it('for a cycle', () => {
    const two = new Map([
      ['shared/a.ts', "import { b } from './b.ts'"],
      ['shared/b.ts', "import type { A } from './a.ts'"],
    ])
    expect(importCycles(two)).toEqual(['shared/a.ts → shared/b.ts → shared/a.ts'])
  })

  it('for browser and Node code in the engine', () => {
    const uses = { document: 'document.title', window: "window.open('')", ImageData: 'new ImageData(1, 1)', process: 'process.env' }
    const files = Object.entries(uses).map(([name, text]) => [`engine/${name}.ts`, `export const a: unknown = ${text}\n`] as const)
    const found = browserUseInEngine(new Map([...sources, ...files]))
    expect(found).toHaveLength(files.length)
    for (const name of Object.keys(uses)) expect(found.join()).toContain(`engine/${name}.ts: Cannot find name '${name}'`)
  })
})
