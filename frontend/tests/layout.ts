// The order of the folders, checked in the source text: allowed imports, no cycles, and no browser code in the engine.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import ts from 'typescript'

/** The other folders that each folder may import from. */
export const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  engine: [],
  shared: [],
  figure: ['engine', 'shared'],
  explorer: ['engine', 'shared', 'figure'],
  report: ['engine', 'shared', 'figure'],
}

/** Source text by path, such as "figure/Edge.svelte". */
export type Sources = ReadonlyMap<string, string>

export function readSources(root: string): Sources {
  const paths = Object.keys(MAY_IMPORT).flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((path) => join(folder, path)),
  )
  const code = paths.filter((path) => /\.(ts|svelte)$/.test(path))
  return new Map(code.sort().map((path) => [path, readFileSync(join(root, path), 'utf8')]))
}

/** The imports of a file, including types: paths from the root for files, package:NAME for packages. */
export function importsOf(path: string, source: string): string[] {
  const found = source.matchAll(/\b(?:from|import)\s*\(?\s*(['"])([^'"\n]+)\1/g)
  return [...found].map(([, , to]) => (to.startsWith('.') ? normalize(join(dirname(path), to)) : `package:${to}`))
}

/** Imports that the table does not allow. The engine may not import packages either. */
export function forbiddenImports(sources: Sources): string[] {
  return [...sources].flatMap(([path, source]) => {
    const [folder] = path.split('/')
    const allowed = [folder, ...MAY_IMPORT[folder]]
    return importsOf(path, source)
      .filter((to) => {
        const isPackage = to.startsWith('package:')
        return isPackage ? folder === 'engine' : !allowed.includes(to.split('/')[0])
      })
      .map((to) => `${path} imports ${to}`)
  })
}

/** The import cycles, each listed once, as the files in the cycle. */
export function importCycles(sources: Sources): string[] {
  const [done, onPath, cycles] = [new Set<string>(), [] as string[], [] as string[]]
  const visit = (path: string): void => {
    const at = onPath.indexOf(path)
    if (at >= 0) cycles.push([...onPath.slice(at), path].join(' → '))
    if (at >= 0 || done.has(path)) return
    onPath.push(path)
    for (const to of importsOf(path, sources.get(path)!)) if (sources.has(to)) visit(to)
    onPath.pop()
    done.add(path)
  }
  for (const path of sources.keys()) visit(path)
  return cycles
}

/** Compiler errors in the engine if only the language is known, without the types of browsers and Node. */
export function browserUseInEngine(sources: Sources): string[] {
  const options: ts.CompilerOptions = {
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    lib: ['lib.es2022.d.ts'],
    types: [],
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    allowImportingTsExtensions: true,
  }
  const host = ts.createCompilerHost(options)
  const { getSourceFile, fileExists, readFile } = host
  const own = (name: string): string | undefined => sources.get(normalize(name).replace(/^\//, ''))
  host.getCurrentDirectory = () => '/'
  host.directoryExists = () => true
  host.fileExists = (name) => own(name) !== undefined || fileExists(name)
  host.readFile = (name) => own(name) ?? readFile(name)
  host.getSourceFile = (name, language, ...rest) => {
    const text = own(name)
    return text === undefined
      ? getSourceFile(name, language, ...rest)
      : ts.createSourceFile(name, text, language, true)
  }
  const engine = [...sources.keys()].filter((path) => path.startsWith('engine/'))
  const program = ts.createProgram(engine.map((path) => `/${path}`), options, host)
  return ts.getPreEmitDiagnostics(program).map(({ file, messageText }) => {
    const text = ts.flattenDiagnosticMessageText(messageText, ' ')
    return `${file?.fileName.replace(/^\//, '') ?? 'engine'}: ${text}`
  })
}
