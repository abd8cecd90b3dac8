// Files *.tex.json contain formulas by name. Importing such a file gives MathML by name, which KaTeX creates during the build.
// Browsers render MathML, so the page contains neither KaTeX nor its fonts.
import katex from 'katex'
import type { Plugin } from 'vite'

export function formulas(): Plugin {
  return {
    name: 'formulas',
    enforce: 'pre',
    transform(source, id) {
      if (!id.endsWith('.tex.json')) return null
      const drawn = Object.entries(JSON.parse(source) as Record<string, string>).map(([name, tex]) => [
        name,
        mathml(tex),
      ])
      return { code: `export default ${JSON.stringify(Object.fromEntries(drawn))}`, map: null, moduleType: 'js' }
    },
  }
}

export function mathml(tex: string): string {
  const drawn = katex.renderToString(`\\displaystyle ${tex}`, { output: 'mathml', strict: 'error', throwOnError: true })
  // Remove KaTeX's span and the annotation with the source. The page's policy forbids style attributes.
  return drawn
    .replace(/^<span[^>]*>|<\/span>$/g, '')
    .replace(/<annotation[^>]*>.*?<\/annotation>/gs, '')
    .replace(/ style="[^"]*"/g, '')
}
