// Puts the script and the style sheet of a page into its HTML, so that the page is a single file.
import type { Plugin } from 'vite'

type Text = { code?: string; source?: string | Uint8Array }

export function inline(page: string): Plugin {
  return {
    name: 'inline-page',
    enforce: 'post',
    generateBundle(_, bundle) {
      const found = { html: '', js: '', css: '' }
      for (const [name, output] of Object.entries(bundle)) {
        const kind = name.split('.').pop() as keyof typeof found
        if (!(kind in found)) throw new Error(`the page must be one HTML file, but the build also created ${name}`)
        if (found[kind]) throw new Error(`the page must have one ${kind} file, but the build created a second: ${name}`)
        const text = output as Text
        found[kind] = text.code ?? String(text.source)
        delete bundle[name]
      }
      this.emitFile({ type: 'asset', fileName: `${page}.html`, source: joined(found) })
    },
  }
}

function joined({ html, js, css }: { html: string; js: string; css: string }): string {
  // Escape text that would end the element. The replacements are functions, because $ is special in replacement strings.
  const script = js.trim().replaceAll('</script', '<\\/script').replaceAll('<!--', '<\\!--')
  const bare = html
    .replace(/\s*<script type="module"[^>]*src=[^>]*><\/script>/, '')
    .replace(/\s*<link rel="stylesheet"[^>]*>/, '')
  return bare
    .replace('</head>', () => `<style>${css.trim()}</style>\n</head>`)
    .replace('</body>', () => `<script type="module">${script}</script>\n</body>`)
}
