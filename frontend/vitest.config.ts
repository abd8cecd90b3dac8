// Engine tests run in Node; browser tests drive Chromium over the pages that Python fills (tests/setup.ts makes both).
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  plugins: [svelte()],
  test: {
    include: ['tests/**/*.test.ts', 'report/**/*.test.ts'],
    globalSetup: ['tests/setup.ts'],
    // Two cores: pages that are timed by people must not be slowed by other files' browsers.
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
})
