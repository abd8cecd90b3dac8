// The forward and backward pass of each kind of operation, as plain loops.
//
// Letters: B rows, I inputs, O outputs. Matrices are row-major. The input is x (B, I), the output y (B, O), and dy is
// ∂loss/∂y. Gradients are added to existing values, because several operations may share a parameter. dx is null if it
// is not needed. Long loops check for a stop request at every row. Short ones, such as copies, do not.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "program.h"
#include "runtime/random.h"
#include "runtime/cancellation.h"

namespace multilayer::reference {

template <class T>
using Tensors = std::vector<std::vector<T>>;

// One operation in a forward and backward pass: its inputs, and the values that it keeps for the backward pass.
template <class T>
struct Context {
    const Op& op;
    std::size_t B;
    const Tensors<T>& parameters;
    const T* x;            // (B, I)
    std::vector<T>& y;     // (B, O)
    std::vector<T>& kept;  // values kept for the backward pass, as each forward function states
    std::vector<T>& also;
    StopPoll& poll;

    const T* parameter(int place) const {
        return place == NONE ? nullptr : parameters[static_cast<std::size_t>(place)].data();
    }
};

// Returns the array to which the gradient of a parameter is added, or null.
template <class T>
T* gradient(Tensors<T>& gradients, int place) {
    return place == NONE ? nullptr : gradients[static_cast<std::size_t>(place)].data();
}

// c (m, n) = a (m, k) · b (k, n). Each sum is in the order of k.
template <class T>
void multiply(std::size_t m, std::size_t k, std::size_t n, const T* a, const T* b, T* c, StopPoll& poll) {
    for (std::size_t i = 0; i < m; ++i) {
        poll.throw_if_requested();
        T* row = c + i * n;
        std::fill_n(row, n, T(0));
        for (std::size_t j = 0; j < k; ++j) {
            const T factor = a[i * k + j];
            const T* other = b + j * n;
            for (std::size_t l = 0; l < n; ++l) row[l] += factor * other[l];
        }
    }
}

// a (m, n) → (n, m).
template <class T>
std::vector<T> transposed(std::size_t m, std::size_t n, const T* a) {
    std::vector<T> out(m * n);
    for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t j = 0; j < n; ++j) out[j * m + i] = a[i * n + j];
    }
    return out;
}

// sums (n) += Σ over the rows of a (B, n).
template <class T>
void add_rows(std::size_t B, std::size_t n, const T* a, T* sums) {
    for (std::size_t b = 0; b < B; ++b) {
        for (std::size_t j = 0; j < n; ++j) sums[j] += a[b * n + j];
    }
}

// z (B, O) = factor · x Wᵀ + b.
template <class T>
void affine(const Context<T>& at, std::size_t O, T* z) {
    const std::size_t I = at.op.d_in;
    const T factor = T(at.op.factor), *bias = at.parameter(at.op.bias);
    multiply(at.B, I, O, at.x, transposed(O, I, at.parameter(at.op.weight)).data(), z, at.poll);
    for (std::size_t b = 0; b < at.B; ++b) {
        for (std::size_t o = 0; o < O; ++o) z[b * O + o] = factor * z[b * O + o] + (bias ? bias[o] : T(0));
    }
}

// dW = factor · dzᵀ x,  db = Σ_rows dz,  dx = factor · dz W.
template <class T>
void affine_back(const Context<T>& at, std::size_t O, const T* dz, T* dx, Tensors<T>& gradients) {
    const std::size_t B = at.B, I = at.op.d_in;
    const T factor = T(at.op.factor);
    std::vector<T> product(O * I);
    multiply(O, B, I, transposed(B, O, dz).data(), at.x, product.data(), at.poll);
    T* dW = gradient(gradients, at.op.weight);
    for (std::size_t i = 0; i < O * I; ++i) dW[i] += factor * product[i];
    if (T* db = gradient(gradients, at.op.bias)) add_rows(B, O, dz, db);
    if (!dx) return;
    multiply(B, O, I, dz, at.parameter(at.op.weight), dx, at.poll);
    for (std::size_t i = 0; i < B * I; ++i) dx[i] *= factor;
}

template <class T>
void linear(const Context<T>& at) {
    affine(at, at.op.d_out, at.y.data());
}

template <class T>
void linear_back(const Context<T>& at, const T* dy, T* dx, Tensors<T>& gradients) {
    affine_back(at, at.op.d_out, dy, dx, gradients);
}

// y = f(z₁) ⊙ z₂, z = [z₁, z₂] = x Wᵀ + b. Keeps z (B, 2·O).
template <class T>
void glu(const Context<T>& at) {
    const std::size_t O = at.op.d_out;
    const T c = T(at.op.constant);
    at.kept.resize(at.B * 2 * O);
    affine(at, 2 * O, at.kept.data());
    for (std::size_t b = 0; b < at.B; ++b) {
        at.poll.throw_if_requested();
        const T *gate = &at.kept[b * 2 * O], *open = gate + O;
        for (std::size_t o = 0; o < O; ++o) at.y[b * O + o] = value(at.op.function, gate[o], c) * open[o];
    }
}

template <class T>
void glu_back(const Context<T>& at, const T* dy, T* dx, Tensors<T>& gradients) {
    const std::size_t O = at.op.d_out;
    const T c = T(at.op.constant);
    std::vector<T> dz(at.B * 2 * O);
    for (std::size_t b = 0; b < at.B; ++b) {
        at.poll.throw_if_requested();
        const T *gate = &at.kept[b * 2 * O], *open = gate + O, *d = dy + b * O;
        T* out = &dz[b * 2 * O];
        for (std::size_t o = 0; o < O; ++o) {
            out[o] = d[o] * open[o] * slope(at.op.function, gate[o], c);
            out[O + o] = d[o] * value(at.op.function, gate[o], c);
        }
    }
    affine_back(at, 2 * O, dz.data(), dx, gradients);
}

// Returns c of f for each unit: its constant, the learned value of the layer, or that of the unit.
template <class T>
struct Constant {
    T fixed;
    const T* learned;
    std::size_t step;  // 0 if all units share one value

    explicit Constant(const Context<T>& at) : fixed(T(at.op.constant)), learned(at.parameter(at.op.learned)), step(0) {
        if (learned) step = at.parameters[static_cast<std::size_t>(at.op.learned)].size() == 1 ? 0 : 1;
    }
    T operator()(std::size_t unit) const { return learned ? learned[unit * step] : fixed; }
};

// a = f(x), or x + α (f(x) − x).
template <class T>
void activation(const Context<T>& at) {
    const std::size_t I = at.op.d_in;
    const T* blend = at.parameter(at.op.blend);
    const Constant<T> c(at);
    for (std::size_t b = 0; b < at.B; ++b) {
        at.poll.throw_if_requested();
        for (std::size_t i = 0; i < I; ++i) {
            const T z = at.x[b * I + i], a = value(at.op.function, z, c(i));
            at.y[b * I + i] = blend ? z + blend[i] * (a - z) : a;
        }
    }
}

// Adds to counts (2, I) the inactive and the flat rows of each unit (CountedRange in program.h).
template <class T>
void count_units(const Op& op, std::size_t B, const T* x, std::int64_t* counts) {
    const std::size_t I = op.d_in;
    const CountedRange& range = op.counted;
    for (std::size_t b = 0; b < B; ++b) {
        for (std::size_t i = 0; i < I; ++i) {
            const T z = x[b * I + i];
            counts[i] += z <= T(range.inactive_low) || z >= T(range.inactive_high);
            counts[I + i] += z < T(range.flat_low) || z > T(range.flat_high);
        }
    }
}

template <class T>
void activation_back(const Context<T>& at, const T* dy, T* dx, Tensors<T>& gradients) {
    const std::size_t I = at.op.d_in;
    const Function f = at.op.function;
    const T* blend = at.parameter(at.op.blend);
    T* dblend = gradient(gradients, at.op.blend);
    const Constant<T> c(at);
    std::vector<T> by_unit(at.op.learned == NONE ? 0 : I);
    for (std::size_t b = 0; b < at.B; ++b) {
        at.poll.throw_if_requested();
        for (std::size_t i = 0; i < I; ++i) {
            const T z = at.x[b * I + i], d = dy[b * I + i], da = blend ? d * blend[i] : d;
            if (blend) dblend[i] += d * (value(f, z, c(i)) - z);
            if (!by_unit.empty()) by_unit[i] += da * slope_by_learned(f, z, c(i));
            if (dx) dx[b * I + i] = da * slope(f, z, c(i)) + (blend ? (1 - blend[i]) * d : T(0));
        }
    }
    if (by_unit.empty()) return;
    T* dlearned = gradient(gradients, at.op.learned);
    if (c.step) {
        for (std::size_t i = 0; i < I; ++i) dlearned[i] += by_unit[i];
    } else {
        T sum = 0;
        for (const T d : by_unit) sum += d;
        dlearned[0] += sum;
    }
}

// A unit-wise operation: y = value(x, w, b), and dx = slope(dy, w) (formulas/unitwise.h).
template <class T, class F>
void unitwise(const Context<T>& at, F value) {
    const std::size_t I = at.op.d_in;
    const T *weight = at.parameter(at.op.weight), *bias = at.parameter(at.op.bias);
    for (std::size_t b = 0; b < at.B; ++b) {
        for (std::size_t i = 0; i < I; ++i) {
            at.y[b * I + i] = value(at.x[b * I + i], weight ? weight[i] : T(0), bias ? bias[i] : T(0));
        }
    }
}

template <class T, class F>
void unitwise_back(const Context<T>& at, const T* dy, T* dx, Tensors<T>& gradients, F slope) {
    const std::size_t I = at.op.d_in;
    const T* weight = at.parameter(at.op.weight);
    T *dweight = gradient(gradients, at.op.weight), *dbias = gradient(gradients, at.op.bias);
    for (std::size_t b = 0; b < at.B; ++b, dy += I) {
        for (std::size_t i = 0; i < I; ++i) {
            if (dweight) dweight[i] += dy[i] * at.x[b * I + i];
            if (dbias) dbias[i] += dy[i];
            if (dx) dx[b * I + i] = slope(dy[i], weight ? weight[i] : T(0));
        }
    }
}

// y = x ⊙ m, where m is 0 or 1/(1 − p). Keeps m (B, I).
template <class T>
void dropout(const Context<T>& at, const Stream& stream, std::span<const std::int64_t> ids, double p) {
    const std::size_t n = at.B * at.op.d_in;
    std::vector<std::uint8_t> mask(n);
    keep(stream, {.rows = ids, .first = 0, .n = at.op.d_in}, mask.data(), p);
    const T raised = T(1 / (1 - p));
    at.kept.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        at.kept[i] = mask[i] ? raised : T(0);
        at.y[i] = at.x[i] * at.kept[i];
    }
}

template <class T>
void dropout_back(const Context<T>& at, const T* dy, T* dx) {
    for (std::size_t i = 0; dx && i < at.B * at.op.d_in; ++i) dx[i] = dy[i] * at.kept[i];
}

// y = γ x̂ + β.
template <class T>
void shifted(const Context<T>& at, const T* xhat) {
    const std::size_t I = at.op.d_in;
    const T *weight = at.parameter(at.op.weight), *bias = at.parameter(at.op.bias);
    for (std::size_t b = 0; b < at.B; ++b) {
        for (std::size_t i = 0; i < I; ++i) {
            at.y[b * I + i] = xhat[b * I + i] * weight[i] + (bias ? bias[i] : T(0));
        }
    }
}

// dγ = Σ dy x̂,  dβ = Σ dy.
template <class T>
void shifted_back(const Context<T>& at, const T* dy, const T* xhat, Tensors<T>& gradients) {
    const std::size_t I = at.op.d_in;
    T* dweight = gradient(gradients, at.op.weight);
    for (std::size_t b = 0; b < at.B; ++b) {
        for (std::size_t i = 0; i < I; ++i) dweight[i] += dy[b * I + i] * xhat[b * I + i];
    }
    if (T* dbias = gradient(gradients, at.op.bias)) add_rows(at.B, I, dy, dbias);
}

// layer_norm, rms_norm and group_norm normalize each of the `groups` slices of a row: x̂ = (x − μ)/√(v + ε), without μ
// for rms_norm. Keeps x̂ (B, I) and 1/√(v + ε) (B, groups).
template <class T>
void row_norm(const Context<T>& at) {
    const std::size_t G = at.op.groups, n = at.op.d_in / G;
    const bool centred = at.op.kind != Kind::rms_norm;
    at.kept.resize(at.B * at.op.d_in);
    at.also.resize(at.B * G);
    for (std::size_t g = 0; g < at.B * G; ++g) {
        at.poll.throw_if_requested();
        const T* x = at.x + g * n;
        T *xhat = &at.kept[g * n], mean = 0, square = 0;
        for (std::size_t i = 0; i < n; ++i) mean += x[i];
        mean = centred ? mean / T(n) : T(0);
        for (std::size_t i = 0; i < n; ++i) square += (x[i] - mean) * (x[i] - mean);
        const T inverse = 1 / std::sqrt(square / T(n) + T(at.op.eps));
        for (std::size_t i = 0; i < n; ++i) xhat[i] = (x[i] - mean) * inverse;
        at.also[g] = inverse;
    }
    shifted(at, at.kept.data());
}

// dx̂ = dy γ and dx = (dx̂ − mean(dx̂) − x̂ mean(dx̂ x̂)) / √(v + ε), without mean(dx̂) for rms_norm.
template <class T>
void row_norm_back(const Context<T>& at, const T* dy, T* dx, Tensors<T>& gradients) {
    const std::size_t G = at.op.groups, n = at.op.d_in / G;
    const bool centred = at.op.kind != Kind::rms_norm;
    const T* weight = at.parameter(at.op.weight);
    shifted_back(at, dy, at.kept.data(), gradients);
    for (std::size_t g = 0; dx && g < at.B * G; ++g) {
        at.poll.throw_if_requested();
        const T *d = dy + g * n, *xhat = &at.kept[g * n], *gamma = weight + g % G * n;
        T mean = 0, along = 0;
        for (std::size_t i = 0; i < n; ++i) {
            mean += d[i] * gamma[i];
            along += d[i] * gamma[i] * xhat[i];
        }
        mean = centred ? mean / T(n) : T(0);
        along /= T(n);
        for (std::size_t i = 0; i < n; ++i) dx[g * n + i] = at.also[g] * (d[i] * gamma[i] - mean - xhat[i] * along);
    }
}

// Batch norm in training: normalizes each column over the rows, and computes new running statistics. Keeps x̂ (B, I)
// and 1/√(v + ε) (I).
template <class T>
void batch_norm(const Context<T>& at, T* running_mean, T* running_var) {
    const std::size_t B = at.B, I = at.op.d_in;
    const T momentum = T(at.op.momentum), rest = T(1 - at.op.momentum);
    std::vector<T> mean(I), square(I);
    add_rows(B, I, at.x, mean.data());
    for (T& m : mean) m /= T(B);
    for (std::size_t b = 0; b < B; ++b) {
        at.poll.throw_if_requested();
        for (std::size_t i = 0; i < I; ++i) {
            const T centre = at.x[b * I + i] - mean[i];
            square[i] += centre * centre;
        }
    }
    at.kept.resize(B * I);
    at.also.resize(I);
    for (std::size_t i = 0; i < I; ++i) {
        at.also[i] = 1 / std::sqrt(square[i] / T(B) + T(at.op.eps));
        running_mean[i] = rest * running_mean[i] + momentum * mean[i];
        running_var[i] = rest * running_var[i] + momentum * (square[i] / T(B - 1));
    }
    for (std::size_t b = 0; b < B; ++b) {
        for (std::size_t i = 0; i < I; ++i) at.kept[b * I + i] = (at.x[b * I + i] - mean[i]) * at.also[i];
    }
    shifted(at, at.kept.data());
}

// Batch norm in prediction, with running statistics.
template <class T>
void batch_norm_running(const Context<T>& at, const T* mean, const T* var) {
    const std::size_t I = at.op.d_in;
    std::vector<T> inverse(I);
    for (std::size_t i = 0; i < I; ++i) inverse[i] = 1 / std::sqrt(var[i] + T(at.op.eps));
    at.kept.resize(at.B * I);
    for (std::size_t b = 0; b < at.B; ++b) {
        for (std::size_t i = 0; i < I; ++i) at.kept[b * I + i] = (at.x[b * I + i] - mean[i]) * inverse[i];
    }
    shifted(at, at.kept.data());
}

template <class T>
void batch_norm_back(const Context<T>& at, const T* dy, T* dx, Tensors<T>& gradients) {
    const std::size_t B = at.B, I = at.op.d_in;
    const T *weight = at.parameter(at.op.weight), *xhat = at.kept.data();
    shifted_back(at, dy, xhat, gradients);
    if (!dx) return;
    std::vector<T> mean(I), along(I);
    for (std::size_t b = 0; b < B; ++b) {
        at.poll.throw_if_requested();
        for (std::size_t i = 0; i < I; ++i) {
            const T d = dy[b * I + i] * weight[i];
            mean[i] += d;
            along[i] += d * xhat[b * I + i];
        }
    }
    for (std::size_t i = 0; i < I; ++i) mean[i] /= T(B), along[i] /= T(B);
    for (std::size_t b = 0; b < B; ++b) {
        at.poll.throw_if_requested();
        for (std::size_t i = 0; i < I; ++i) {
            dx[b * I + i] = at.also[i] * (dy[b * I + i] * weight[i] - mean[i] - xhat[b * I + i] * along[i]);
        }
    }
}

}  // namespace multilayer::reference
