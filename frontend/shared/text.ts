// Small helpers for text.
export const plural = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`

export const truncate = (text: string, most = 24): string =>
  text.length <= most ? text : `${text.slice(0, most - 1)}…`

const LOW = '₀₁₂₃₄₅₆₇₈₉'
export const subscript = (n: number): string => [...String(n)].map((c) => LOW[Number(c)] ?? c).join('')
