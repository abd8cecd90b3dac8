// A finding: a fault of training, with its place, its numbers and remedies. Python writes it into both pages.
export interface Remedy {
  readonly text: string
  /** A command line, or an empty string. */
  readonly command: string
}

export interface Finding {
  readonly kind: string
  readonly severity: 'info' | 'warning' | 'error'
  /** The kind in plain words. */
  readonly title: string
  /** One sentence with the numbers. */
  readonly message: string
  /** Layer, ensemble member, units, column, rows and epoch as text, as far as they apply. */
  readonly place: readonly string[]
  /** The part of the place about units, such as "40 of 64 units". */
  readonly units: string
  /** An adjective for a unit with this fault, such as "dead"; empty if the fault is not about units. */
  readonly unit: string
  /** Names and values of the evidence. */
  readonly numbers: readonly (readonly [string, string])[]
  /** Units and rows are counted from 0, epochs and members from 1. */
  readonly where: {
    readonly layer?: string
    readonly units?: readonly number[]
    readonly epoch?: number
    readonly member?: number
    readonly column?: string
    readonly rows?: readonly number[]
  }
  /** The best remedy first. */
  readonly remedies: readonly Remedy[]
}

export interface FindingGroup {
  readonly kind: string
  readonly title: string
  /** The most severe of the findings. */
  readonly severity: Finding['severity']
  readonly findings: readonly Finding[]
}

/** Adds signs to severities, which color alone would not distinguish. */
export const SEVERITY_SIGNS: Readonly<Record<Finding['severity'], string>> = { info: 'i', warning: '!', error: '✕' }

const RANKS: readonly Finding['severity'][] = ['info', 'warning', 'error']

/** Findings of one kind together, because several layers or members often have the same fault. */
export function groupFindings(findings: readonly Finding[]): FindingGroup[] {
  const kinds = [...new Set(findings.map((one) => one.kind))]
  return kinds.map((kind) => {
    const same = findings.filter((one) => one.kind === kind)
    return { kind, title: same[0].title, severity: mostSevere(same), findings: same }
  })
}

/** The findings that began at a known epoch, those of one epoch together. `text` has a line per finding. */
export function groupByEpoch(findings: readonly Finding[]): { epoch: number; severity: Finding['severity']; text: string }[] {
  const epochs = [...new Set(findings.flatMap((one) => one.where.epoch ?? []))].sort((a, b) => a - b)
  return epochs.map((epoch) => {
    const same = findings.filter((one) => one.where.epoch === epoch)
    const text = same.map((one) => `${one.title} (${one.place.join(', ')})`).join('\n')
    return { epoch, severity: mostSevere(same), text }
  })
}

const mostSevere = (findings: readonly Finding[]): Finding['severity'] =>
  RANKS[Math.max(...findings.map((one) => RANKS.indexOf(one.severity)))]

/** Numbers in ascending order as ranges, at most `most` of them: "0–39, 44 and 12 more". `of` is the true count. */
export function listNumbers(numbers: readonly number[], most: number, of = numbers.length): string {
  const ranges: [number, number][] = []
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const last = ranges.at(-1)
    if (last && n === last[1] + 1) last[1] = n
    else ranges.push([n, n])
  }
  const shown = ranges.slice(0, most)
  const rest = of - shown.reduce((sum, [from, to]) => sum + to - from + 1, 0)
  const text = shown.map(([from, to]) => (from === to ? `${from}` : `${from}${to === from + 1 ? ', ' : '–'}${to}`)).join(', ')
  return rest > 0 ? `${text} and ${rest.toLocaleString('en-US')} more` : text
}

/** The number of units with a fault, from evidence such as "1,040 of 2,048 units". */
export const countUnits = (finding: Finding): number =>
  parseInt(finding.units.replaceAll(',', '')) || (finding.where.units?.length ?? 0)
