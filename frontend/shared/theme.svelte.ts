// Light or dark: the setting of the system unless the reader chose one. Canvases read the colors of the style sheet here.
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

  /** The current value of a custom property such as `--ink`. Svelte reads it again when the theme changes. */
  color(name: string): string {
    const key = `${this.dark} ${name}`
    let found = this.known.get(key)
    if (!found) this.known.set(key, (found = getComputedStyle(document.documentElement).getPropertyValue(name).trim()))
    return found
  }
}

export const theme = new Theme()
