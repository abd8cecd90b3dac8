// Formats numbers: a true minus sign, fixed decimals in columns, full precision in fields that can be edited.
const MINUS = '\u2212'

export const withMinusSign = (text: string): string => text.replaceAll('-', MINUS)

/** Fixed decimals; powers of ten for values of at least 1e6; NaN and ∞. */
export function fixed(value: number, decimals = 2): string {
  if (Number.isNaN(value)) return 'NaN'
  if (!Number.isFinite(value)) return value > 0 ? '∞' : `${MINUS}∞`
  const size = Math.abs(value)
  if (size >= 1e6) return scientific(value)
  const text = value.toFixed(decimals)
  return withMinusSign(Number(text) === 0 ? text.replace('-', '') : text)
}

/** A number of significant digits, without trailing zeros. */
export function significant(value: number, digits = 4): string {
  if (!Number.isFinite(value)) return fixed(value)
  const size = Math.abs(value)
  if (value !== 0 && (size >= 1e6 || size < 1e-4)) return scientific(value, digits - 2)
  return withMinusSign(String(Number(value.toPrecision(digits))))
}

/** With a plus or minus sign. */
export const signed = (value: number, decimals = 2): string => {
  const text = fixed(value, decimals)
  return value > 0 && !/^[0.]+$/.test(text) ? `+${text}` : text
}

/** All digits that are needed to restore this float64. */
export const exact = (value: number): string => withMinusSign(String(value))

/** As many digits as fit into `room` characters, and at least one. */
export function formatWithin(value: number, room: number): string {
  for (let digits = 17; digits > 1; digits--) {
    const text = exact(Number(value.toPrecision(digits)))
    if (text.length <= room) return text
  }
  return exact(Number(value.toPrecision(1)))
}

const RAISED = '⁰¹²³⁴⁵⁶⁷⁸⁹'

export function scientific(value: number, decimals = 1): string {
  if (!Number.isFinite(value)) return fixed(value)
  const [digits, exponent] = value.toExponential(decimals).split('e') as [string, string]
  const raised = [...exponent].map((c) => (c === '-' ? '⁻' : c === '+' ? '' : RAISED[Number(c)])).join('')
  return `${withMinusSign(digits)}·10${raised}`
}

/** 1234567 → "1,234,567". */
export const groupDigits = (value: number): string => withMinusSign(Math.round(value).toLocaleString('en-US'))

export function bytes(count: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let unit = 0
  while (count >= 1000 && unit < units.length - 1) ((count /= 1000), unit++)
  return `${significant(count, 3)} ${units[unit]}`
}

export const percent = (share: number, decimals = 1): string => `${fixed(100 * share, decimals)} %`

/** Parses a typed number such as "1/3", "0,5", "−2" or "1e-3"; null if it is not a number. */
export function parseNumber(text: string): number | null {
  const plain = text.trim().replaceAll(MINUS, '-').replace(',', '.')
  const number = '[+-]?(?:\\d+\\.?\\d*|\\.\\d+)(?:e[+-]?\\d+)?'
  const match = new RegExp(`^(${number})(?:\\s*/\\s*(${number}))?$`, 'i').exec(plain)
  if (!match) return null
  const value = Number(match[1]) / (match[2] === undefined ? 1 : Number(match[2]))
  return Number.isFinite(value) ? value : null
}
