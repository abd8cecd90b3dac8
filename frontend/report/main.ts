import '../shared/theme.css'
import './chart/looks.css'
import { mount } from 'svelte'
import { injected } from '../shared/state.ts'
import Report from './Report.svelte'
import type { State } from './types.ts'

mount(Report, { target: document.getElementById('app')!, props: { state: injected() as State | null } })
