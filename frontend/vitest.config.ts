// Engine tests run in Node. Browser tests open pages written by Python in Chromium. tests/setup.ts prepares both.
// The layout tests only read the sources; `npm run check` runs only these.
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

const LAYOUT = 'tests/layout.test.ts'

export default defineConfig({
  plugins: [svelte()],
  test: {
    // One file at a time: browsers of several files would slow each other down on two cores.
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
