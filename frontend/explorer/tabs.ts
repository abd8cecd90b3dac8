// The tabs in the order they are shown; one that needs something of the injected state says what.
import type { Component } from 'svelte'
import type { Lab } from './lab.svelte.ts'
import Depth from './tabs/Depth.svelte'
import Draw from './tabs/Draw.svelte'
import Gallery from './tabs/Gallery.svelte'
import OwnNetwork from './tabs/OwnNetwork.svelte'
import Play from './tabs/Play.svelte'
import Steps from './tabs/Steps.svelte'
import Train from './tabs/Train.svelte'
import type { Page } from './page.ts'
import type { View } from './view.svelte.ts'

export interface Tab {
  readonly id: string
  readonly title: string
  readonly component: Component<{ lab: Lab; view: View; state: unknown }>
  readonly needs?: (state: unknown) => boolean
  /** What Undo and Share are about on this tab. */
  readonly edits?: 'own' | 'lab' | 'draw'
}

const tab = (id: string, title: string, component: unknown, edits?: Tab['edits'], needs?: Tab['needs']): Tab => ({
  id,
  title,
  component: component as Tab['component'],
  edits,
  needs,
})

export const TABS: readonly Tab[] = [
  tab('own', 'Your network', OwnNetwork, 'own', (state) => (state as Page | null)?.model !== undefined),
  tab('play', 'Play', Play, 'lab'),
  tab('steps', 'Step by step', Steps, 'lab'),
  tab('train', 'Train', Train, 'lab'),
  tab('gallery', 'Activations', Gallery),
  tab('depth', 'Initialisation', Depth),
  tab('draw', 'Fit a curve', Draw, 'draw'),
]
