import '../shared/theme.css'
import './chart/chart.css'
import { mount } from 'svelte'
import { injected } from '../shared/injectedState.ts'
import Report from './Report.svelte'
import type { State } from './types.ts'

mount(Report, { target: document.getElementById('app')!, props: { state: injected() as State | null } })
