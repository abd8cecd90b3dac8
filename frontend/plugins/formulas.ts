// Files *.tex.json hold formulas by name; importing one gives MathML by name, made by KaTeX while the page is built.
// Browsers draw MathML themselves, so the page carries neither KaTeX nor its fonts.
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
  // Its own span and the source it repeats are of no use, and the policy of the page allows no style attributes.
  return drawn
    .replace(/^<span[^>]*>|<\/span>$/g, '')
    .replace(/<annotation[^>]*>.*?<\/annotation>/gs, '')
    .replace(/ style="[^"]*"/g, '')
}
