import '../shared/theme.css'
import { mount } from 'svelte'
import { injectedState } from '../shared/injectedState.ts'
import Explorer from './Explorer.svelte'

mount(Explorer, { target: document.getElementById('app')!, props: { state: injectedState() } })
