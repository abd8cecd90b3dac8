// The four normalizations: x̂ = (x − μ)/√(v + ε) over a group of numbers, then γ x̂ + β.
//
//   dx̂ = dy γ,  dx = (dx̂ − mean dx̂ − x̂ mean(dx̂ x̂)) / √(v + ε);  without the term mean dx̂ if μ is not subtracted
import type { LayerSpec, Layer, Tensors } from './layer.ts'

export function normLayer(layer: LayerSpec, n: number, tensors: Tensors, name: string): Layer {
  const gamma = tensors[`${name}.weight`]
  const beta = layer.kind === 'rmsnorm' ? null : tensors[`${name}.bias`]
  const eps = layer.eps as number
  if (layer.kind === 'batchnorm') return batchNorm(name, n, gamma, beta!, eps, tensors)
  const group = n / (layer.kind === 'groupnorm' ? (layer.groups as number) : 1)
  const centred = layer.kind !== 'rmsnorm'
  return {
    name,
    kind: layer.kind,
    nIn: n,
    nOut: n,
    elementwise: false,
    forward: (x) => {
      const y = new Float64Array(x.length)
      for (let at = 0; at < x.length; at += group) {
        const { mean, inverse } = statistics(x, at, group, eps, centred)
        for (let k = at; k < at + group; k++) y[k] = (x[k] - mean) * inverse * gamma[k % n] + (beta ? beta[k % n] : 0)
      }
      return y
    },
    backward: (x, _, dy) => {
      const dx = new Float64Array(x.length)
      for (let at = 0; at < x.length; at += group) {
        const { mean, inverse } = statistics(x, at, group, eps, centred)
        let [sum, along] = [0, 0]
        for (let k = at; k < at + group; k++) {
          const d = dy[k] * gamma[k % n]
          sum += d
          along += d * (x[k] - mean) * inverse
        }
        for (let k = at; k < at + group; k++) {
          const xhat = (x[k] - mean) * inverse
          dx[k] = inverse * (dy[k] * gamma[k % n] - (centred ? sum / group : 0) - (xhat * along) / group)
        }
      }
      return dx
    },
  }
}

function statistics(
  x: Float64Array,
  at: number,
  n: number,
  eps: number,
  centred: boolean,
): { mean: number; inverse: number } {
  let mean = 0
  if (centred) for (let k = at; k < at + n; k++) mean += x[k] / n
  let square = 0
  for (let k = at; k < at + n; k++) square += (x[k] - mean) ** 2
  return { mean, inverse: 1 / Math.sqrt(square / n + eps) }
}

function batchNorm(
  name: string,
  n: number,
  gamma: Float64Array,
  beta: Float64Array,
  eps: number,
  tensors: Tensors,
): Layer {
  const mean = tensors[`${name}.running_mean`]
  const inverse = tensors[`${name}.running_var`].map((v) => 1 / Math.sqrt(v + eps))
  return {
    name,
    kind: 'batchnorm',
    nIn: n,
    nOut: n,
    elementwise: true,
    forward: (x) => x.map((value, k) => (value - mean[k % n]) * inverse[k % n] * gamma[k % n] + beta[k % n]),
    backward: (_, __, dy) => dy.map((d, k) => d * gamma[k % n] * inverse[k % n]),
  }
}
