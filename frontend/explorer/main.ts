import '../shared/theme.css'
import { mount } from 'svelte'
import Explorer from './Explorer.svelte'

mount(Explorer, { target: document.getElementById('app')! })
