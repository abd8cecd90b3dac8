// Special functions for activations. They use exp(−|z|), so that no exponential overflows.

/** σ(z) = 1 / (1 + e⁻ᶻ). */
export function logistic(z: number): number {
  const e = Math.exp(-Math.abs(z))
  return z >= 0 ? 1 / (1 + e) : e / (1 + e)
}

/** σ′(z) = σ(z) σ(−z). */
export function logisticSlope(z: number): number {
  const e = Math.exp(-Math.abs(z))
  return e / (1 + e) ** 2
}

/** log(1 + eᶻ). */
export const softplus = (z: number): number => Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z)))

/** z · gate; 0 if the gate is 0, even for an infinite z. */
export const gated = (z: number, gate: number): number => (gate === 0 ? 0 : z * gate)

const ROOT_PI = Math.sqrt(Math.PI)

/** erf by its series of positive terms; for 0 ≤ x ≤ 2.5. */
function erfSeries(x: number): number {
  let term = x
  let sum = x
  for (let n = 1; term > sum * 1e-17; n++) {
    term *= (2 * x * x) / (2 * n + 1)
    sum += term
  }
  return (2 / ROOT_PI) * Math.exp(-x * x) * sum
}

/** erfc by its continued fraction, evaluated from the last term; for x > 2.5. */
function erfcFraction(x: number): number {
  let tail = 0
  for (let n = 60; n >= 1; n--) tail = n / 2 / (x + tail)
  return Math.exp(-x * x) / ROOT_PI / (x + tail)
}

export function erfc(x: number): number {
  if (Number.isNaN(x)) return x
  const size = Math.abs(x)
  if (size > 2.5) return x > 0 ? erfcFraction(size) : 2 - erfcFraction(size)
  return x >= 0 ? 1 - erfSeries(size) : 1 + erfSeries(size)
}

/** Φ(z), the normal distribution function. */
export const normalCdf = (z: number): number => erfc(-z / Math.SQRT2) / 2

/** Φ′(z). */
export const normalPdf = (z: number): number => Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI)
