// A page that the local server gave while a run is going on hears of it: server-sent events, each a whole report.
import type { Report } from './types.ts'

interface Listeners {
  update: (report: Report) => void
  status: (status: 'live' | 'lost' | 'done') => void
}

/** Listens until the run has ended; gives what stops it. */
export function listen({ update, status }: Listeners): () => void {
  const source = new EventSource('events')
  source.addEventListener('open', () => status('live'))
  source.addEventListener('report', (event) => update(JSON.parse((event as MessageEvent<string>).data) as Report))
  source.addEventListener('done', () => {
    // The server ends with the run: nothing is left to connect to again.
    source.close()
    status('done')
  })
  source.addEventListener('error', () => status('lost'))
  return () => source.close()
}
