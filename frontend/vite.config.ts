// Two pages, each a single HTML file that contains its script and styles: `vite build --mode explorer` and `--mode report`.
// When Python writes a page, it inserts the state and the hashes of the content security policy.
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig, type Plugin } from 'vite'
import { formulas } from './plugins/formulas.ts'
import { inline } from './plugins/inline.ts'

const PAGES = ['explorer', 'report']

export default defineConfig(({ mode, command }) => {
  const page = PAGES.includes(mode) ? mode : 'explorer'
  const plugins: Plugin[] = [svelte({ compilerOptions: { css: 'external' } }), formulas()].flat() as Plugin[]
  if (command === 'build') plugins.push(inline(page))
  return {
    root: import.meta.dirname,
    plugins,
    build: {
      target: 'es2022',
      outDir: '../src/multilayer/pages/built',
      emptyOutDir: false,
      assetsInlineLimit: 0,
      cssCodeSplit: false,
      modulePreload: false,
      rollupOptions: { input: `${import.meta.dirname}/${page}/index.html` },
    },
  }
})
