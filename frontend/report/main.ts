import '../shared/theme.css'
import './chart/chart.css'
import { mount } from 'svelte'
import { injectedState } from '../shared/injectedState.ts'
import Report from './Report.svelte'
import type { State } from './types.ts'

mount(Report, { target: document.getElementById('app')!, props: { state: injectedState() as State | null } })
