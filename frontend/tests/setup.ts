// Runs before all tests: Python writes the golden numbers and the pages for the browser tests into a temporary folder.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'

const here = import.meta.dirname

declare module 'vitest' {
  export interface ProvidedContext {
    folder: string
    python: string
  }
}

export default function setup(project: TestProject): () => void {
  const own = join(here, '../../.venv/bin/python')
  const python = process.env.PYTHON ?? (existsSync(own) ? own : 'python3')
  const folder = mkdtempSync(join(tmpdir(), 'multilayer-pages-'))
  execFileSync(python, [join(here, 'golden.py'), join(folder, 'golden.json')], { stdio: 'inherit' })
  execFileSync(python, [join(here, 'pages.py'), folder], { stdio: 'inherit' })
  project.provide('folder', folder)
  project.provide('python', python)
  return () => rmSync(folder, { recursive: true, force: true })
}
