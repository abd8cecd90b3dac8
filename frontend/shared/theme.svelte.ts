// Light or dark: the system's choice unless the reader made one. Canvases read the colours of the style sheet from here.
type Choice = 'system' | 'light' | 'dark'

class Theme {
  choice = $state<Choice>('system')
  private system = $state(matchMedia('(prefers-color-scheme: dark)').matches)

  constructor() {
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (event) => (this.system = event.matches))
  }

  get dark(): boolean {
    return this.choice === 'system' ? this.system : this.choice === 'dark'
  }

  toggle(): void {
    this.choice = this.dark ? 'light' : 'dark'
    document.documentElement.dataset.theme = this.choice
  }

  private readonly known = new Map<string, string>()

  /** The value of a custom property such as `--ink`, now. Reading it depends on the theme. */
  color(name: string): string {
    const key = `${this.dark} ${name}`
    let found = this.known.get(key)
    if (!found) this.known.set(key, (found = getComputedStyle(document.documentElement).getPropertyValue(name).trim()))
    return found
  }
}

export const theme = new Theme()
