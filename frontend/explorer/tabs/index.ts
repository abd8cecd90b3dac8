// The tabs in the order in which they are shown. `needs` says whether the injected state has the data for a tab.
import type { Component } from 'svelte'
import type { Playground } from '../playground.svelte.ts'
import Initialisation from './Initialisation.svelte'
import CurveFitting from './CurveFitting.svelte'
import Activations from './Activations.svelte'
import YourNetwork from './YourNetwork.svelte'
import Play from './Play.svelte'
import StepByStep from './StepByStep.svelte'
import Train from './Train.svelte'
import type { PageData } from '../pageData.ts'
import type { ExplorerState } from '../explorerState.svelte.ts'

export interface Tab {
  readonly id: string
  readonly title: string
  readonly component: Component<{ playground: Playground; explorer: ExplorerState; state: unknown }>
  readonly needs?: (state: unknown) => boolean
  /** The object that Undo and Share act on in this tab. */
  readonly edits?: 'userModel' | 'playground' | 'targetCurve'
}

const tab = (id: string, title: string, component: unknown, edits?: Tab['edits'], needs?: Tab['needs']): Tab => ({
  id,
  title,
  component: component as Tab['component'],
  edits,
  needs,
})

export const TABS: readonly Tab[] = [
  tab('own', 'Your network', YourNetwork, 'userModel', (state) => (state as PageData | null)?.model !== undefined),
  tab('play', 'Play', Play, 'playground'),
  tab('steps', 'Step by step', StepByStep, 'playground'),
  tab('train', 'Train', Train, 'playground'),
  tab('gallery', 'Activations', Activations),
  tab('depth', 'Initialization', Initialisation),
  tab('draw', 'Fit a curve', CurveFitting, 'targetCurve'),
]
