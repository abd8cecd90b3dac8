// Engine tests run in Node; browser tests drive Chromium over the pages that Python fills (tests/setup.ts makes both).
// The layout tests only read the sources: `npm run check` runs them alone.
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

const LAYOUT = 'tests/layout.test.ts'

export default defineConfig({
  plugins: [svelte()],
  test: {
    // Two cores: pages that are timed by people must not be slowed by other files' browsers.
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    projects: [
      { extends: true, test: { name: 'layout', include: [LAYOUT] } },
      {
        extends: true,
        test: {
          name: 'pages',
          include: ['tests/**/*.test.ts'],
          exclude: [LAYOUT],
          globalSetup: ['tests/setup.ts'],
        },
      },
    ],
  },
})
