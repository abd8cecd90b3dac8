// Fits a curve by a network with one hidden layer. The hidden layer is fixed and evenly spaced, the output layer is the
// least-squares solution.
//
//   g(x) = b + Σ_k v_k f(w (x − c_k))        c_k even over [−reach, reach]
import { activation } from './activations.ts'

export interface CurveFit {
  /** g at the requested points. */
  readonly values: Float64Array
  /** v_k f(w (x − c_k)) at the same points. */
  readonly parts: readonly Float64Array[]
  /** Root mean square error over the fitted points. */
  readonly error: number
}

export function fitCurve(
  name: string,
  units: number,
  x: Float64Array,
  y: Float64Array,
  at: Float64Array,
  reach = 2,
): CurveFit {
  const { f } = activation(name)
  const spacing = (2 * reach) / units
  // Steep enough that neighboring units overlap, but not so steep that steps remain between them.
  const w = name === 'relu' ? 1 : 3 / spacing
  const centres = Array.from({ length: units }, (_, k) => -reach + spacing * (name === 'relu' ? k : k + 0.5))
  const features = (value: number): number[] => [...centres.map((c) => f(w * (value - c))), 1]
  const v = leastSquares(Array.from(x, features), y)
  const parts = centres.map((c, k) => at.map((value) => v[k] * f(w * (value - c))))
  const sum = (value: number): number => features(value).reduce((total, h, k) => total + v[k] * h, 0)
  const error = Math.sqrt(x.reduce((total, value, k) => total + (sum(value) - y[k]) ** 2, 0) / x.length)
  return { values: at.map(sum), parts, error }
}

/** Solves min ‖A v − y‖² + λ‖v‖² by Cholesky. A small λ keeps the matrix positive definite. */
function leastSquares(A: readonly number[][], y: Float64Array): number[] {
  const n = A[0].length
  const M = Array.from({ length: n }, () => new Float64Array(n))
  const right = new Float64Array(n)
  A.forEach((row, r) => {
    for (let i = 0; i < n; i++) {
      right[i] += row[i] * y[r]
      for (let j = 0; j <= i; j++) M[i][j] += row[i] * row[j]
    }
  })
  for (let i = 0; i < n; i++) M[i][i] += 1e-9 * A.length
  for (let i = 0; i < n; i++)
    for (let j = 0; j <= i; j++) {
      let sum = M[i][j]
      for (let k = 0; k < j; k++) sum -= M[i][k] * M[j][k]
      M[i][j] = i === j ? Math.sqrt(Math.max(sum, 1e-300)) : sum / M[j][j]
    }
  const half = new Float64Array(n)
  for (let i = 0; i < n; i++) {
    let sum = right[i]
    for (let k = 0; k < i; k++) sum -= M[i][k] * half[k]
    half[i] = sum / M[i][i]
  }
  const v = new Array<number>(n).fill(0)
  for (let i = n - 1; i >= 0; i--) {
    let sum = half[i]
    for (let k = i + 1; k < n; k++) sum -= M[k][i] * v[k]
    v[i] = sum / M[i][i]
  }
  return v
}
