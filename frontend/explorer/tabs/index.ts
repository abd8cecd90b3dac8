// The tabs in the order they are shown; one that needs something of the injected state says what.
import type { Component } from 'svelte'
import type { Lab } from '../playground.svelte.ts'
import Depth from './Initialisation.svelte'
import Draw from './CurveFitting.svelte'
import Gallery from './Activations.svelte'
import OwnNetwork from './YourNetwork.svelte'
import Play from './Play.svelte'
import Steps from './StepByStep.svelte'
import Train from './Train.svelte'
import type { Page } from '../pageData.ts'
import type { View } from '../explorerState.svelte.ts'

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
