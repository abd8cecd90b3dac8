// Small helpers for text.
export const plural = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`

/** "a", "a and b", "a, b and c". */
export function listed(words: readonly string[]): string {
  if (words.length < 2) return words.join('')
  return `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`
}

export const shortened = (text: string, most = 24): string =>
  text.length <= most ? text : `${text.slice(0, most - 1)}…`

const LOW = '₀₁₂₃₄₅₆₇₈₉'
export const subscript = (n: number): string => [...String(n)].map((c) => LOW[Number(c)] ?? c).join('')
