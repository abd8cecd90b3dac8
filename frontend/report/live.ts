// Updates of a running run: the local server sends server-sent events, each with a complete report.
import type { Report } from './types.ts'

interface Listeners {
  update: (report: Report) => void
  status: (status: 'live' | 'lost' | 'done') => void
}

/** Listens until the run has ended. Returns a function that stops listening. */
export function listen({ update, status }: Listeners): () => void {
  const source = new EventSource('events')
  source.addEventListener('open', () => status('live'))
  source.addEventListener('report', (event) => update(JSON.parse((event as MessageEvent<string>).data) as Report))
  source.addEventListener('done', () => {
    // The server ends with the run. Without this, the browser would try to reconnect.
    source.close()
    status('done')
  })
  source.addEventListener('error', () => status('lost'))
  return () => source.close()
}
