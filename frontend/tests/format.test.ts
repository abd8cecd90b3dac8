// Numbers as text: parsing of user input, and formatting on the pages.
import { describe, expect, it } from 'vitest'
import { bytes, exact, fixed, formatWithin, groupDigits, parseNumber, scientific, signed, significant } from '../shared/format.ts'

describe('numbers as text', () => {
  it('parses typed numbers', () => {
    const read: [string, number | null][] = [
      ['1/3', 1 / 3],
      ['0,5', 0.5],
      ['−2', -2],
      [' 1e-3 ', 1e-3],
      ['.5', 0.5],
      ['3.', 3],
      ['1/0', null],
      ['', null],
      ['two', null],
      ['1 2', null],
      ['1e999', null],
    ]
    for (const [text, value] of read) expect(parseNumber(text), text).toBe(value)
  })

  it('formats numbers', () => {
    expect(fixed(-0.001)).toBe('0.00')
    expect(fixed(-1.005, 1)).toBe('−1.0')
    expect([fixed(NaN), fixed(Infinity), fixed(-Infinity)]).toEqual(['NaN', '∞', '−∞'])
    expect(signed(0.5)).toBe('+0.50')
    expect(signed(0.001)).toBe('0.00')
    expect(significant(1234.5678, 3)).toBe('1230')
    expect(scientific(-1.5e-7)).toBe('−1.5·10⁻⁷')
    expect(scientific(Infinity)).toBe('∞')
    expect(groupDigits(1234567)).toBe('1,234,567')
    expect(bytes(14336)).toBe('14.3 kB')
    expect([0, 540, -3.55271e-15, 0.123456789, 1234567.891].map((v) => formatWithin(v, 8))).toEqual([
      '0',
      '540',
      '−3.6e−15',
      '0.123457',
      '1234568',
    ])
    expect(parseNumber(exact(-0.1 - 0.2))).toBe(-0.1 - 0.2)
  })
})
