import '../shared/theme.css'
import { mount } from 'svelte'
import { injected } from '../shared/state.ts'
import Report from './Report.svelte'

mount(Report, { target: document.getElementById('app')!, props: { state: injected() } })
