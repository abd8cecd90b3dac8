// The first operation of a network with typed inputs: numbers, embedded or unchanged, and then categories, in one vector.
//
// Each of the F numbers has its own weights, K hidden values and D outputs (formulas: nn/layers/columns.py).
//     plr         relu(W [cos v, sin v] + b),  v = 2π c x
//     pbld        [x, W cos(2π w x + b′) + b]
//     piecewise   W e(x) + b,  e_t = clip((x − edge_t)/(edge_{t+1} − edge_t), 0, 1), open at both ends
// There is no dx, because this is the first operation. Keeps the hidden values (B, F, K) and, for plr and pbld, v (B, F, n).
#pragma once

#include "reference/layers.h"

namespace multilayer::reference {

// The number of outputs of a feature.
inline std::size_t numeric_width(const Columns& c) {
    return c.numeric == Numeric::none ? 1 : c.D + (c.numeric == Numeric::pbld ? 1 : 0);
}

// Computes the hidden values (K) of the number x of feature f, and v (n).
template <class T>
void encode(const Context<T>& at, const Tensors<T>& buffers, std::size_t f, T x, T* inside, T* v) {
    const Columns& c = at.op.columns;
    if (c.numeric == Numeric::piecewise) {
        const T* edge = &buffers[static_cast<std::size_t>(c.edges)][f * (c.n + 1)];
        for (std::size_t j = 0; j < c.n; ++j) {
            const T t = (x - edge[j]) / (edge[j + 1] - edge[j]);
            inside[j] = t < 0 && j > 0 ? T(0) : t > 1 && j + 1 < c.n ? T(1) : t;
        }
        return;
    }
    const T *frequency = at.parameter(c.frequency) + f * c.n, *phase = at.parameter(c.phase);
    for (std::size_t j = 0; j < c.n; ++j) {
        v[j] = 2 * std::numbers::pi_v<T> * x * frequency[j] + (phase ? phase[f * c.n + j] : T(0));
        inside[j] = std::cos(v[j]);
        if (c.numeric == Numeric::plr) inside[c.n + j] = std::sin(v[j]);
    }
}

// Writes the values of a code 0 … n: a row of its table, n one-hot columns, or −1 or +1 for two values. Code 0 gives
// zeros if there is no table.
template <class T>
void category(const Context<T>& at, const Category& c, std::int64_t code, T* out) {
    if (c.table != NONE) {
        std::copy_n(at.parameter(c.table) + static_cast<std::size_t>(code) * c.width, c.width, out);
        return;
    }
    std::fill_n(out, c.width, T(0));
    if (code == 0) return;
    if (c.values == 2) {
        out[0] = code == 1 ? T(-1) : T(1);
    } else {
        out[code - 1] = 1;
    }
}

// x (B, F), codes (B, categories).
template <class T>
void columns(const Context<T>& at, const Tensors<T>& buffers, std::size_t F, const std::int64_t* codes) {
    const Columns& c = at.op.columns;
    const std::size_t K = c.K, D = c.D, width = numeric_width(c);
    at.kept.resize(at.B * F * K);
    at.also.resize(at.B * F * c.n);
    for (std::size_t b = 0; b < at.B; ++b) {
        T* y = &at.y[b * at.op.d_out];
        for (std::size_t f = 0; f < F; ++f, y += width) {
            const T x = at.x[b * F + f];
            if (c.numeric == Numeric::none || c.numeric == Numeric::pbld) y[0] = x;
            if (c.numeric == Numeric::none) continue;
            T *inside = &at.kept[(b * F + f) * K], *z = y + (width - D);
            encode(at, buffers, f, x, inside, &at.also[(b * F + f) * c.n]);
            multiply(1, K, D, inside, at.parameter(c.weight) + f * K * D, z, at.poll);
            const T* bias = at.parameter(c.bias) + f * D;
            for (std::size_t d = 0; d < D; ++d) {
                z[d] += bias[d];
                if (c.numeric == Numeric::plr && z[d] <= 0) z[d] = 0;
            }
        }
        for (std::size_t i = 0; i < c.categories.size(); y += c.categories[i++].width) {
            category(at, c.categories[i], codes[b * c.categories.size() + i], y);
        }
    }
}

// Backward pass for dz (D) of feature f of row b: dW = inside dzᵀ, db = dz, and the gradients of frequency and phase
// through dinside (K).
template <class T>
void encode_back(const Context<T>& at, std::size_t F, std::size_t b, std::size_t f, const T* dz, T* dinside,
                 Tensors<T>& gradients) {
    const Columns& c = at.op.columns;
    const std::size_t K = c.K, D = c.D, n = c.n;
    const T *inside = &at.kept[(b * F + f) * K], *v = &at.also[(b * F + f) * n], x = at.x[b * F + f];
    const T* weight = at.parameter(c.weight) + f * K * D;
    T *dW = gradient(gradients, c.weight) + f * K * D, *db = gradient(gradients, c.bias) + f * D;
    for (std::size_t d = 0; d < D; ++d) db[d] += dz[d];
    for (std::size_t k = 0; k < K; ++k) {
        dinside[k] = 0;
        for (std::size_t d = 0; d < D; ++d) {
            dW[k * D + d] += inside[k] * dz[d];
            dinside[k] += dz[d] * weight[k * D + d];
        }
    }
    if (c.numeric == Numeric::piecewise) return;
    T *dfrequency = gradient(gradients, c.frequency) + f * n, *dphase = gradient(gradients, c.phase);
    for (std::size_t j = 0; j < n; ++j) {
        T dv = -dinside[j] * std::sin(v[j]);
        if (c.numeric == Numeric::plr) dv += dinside[n + j] * std::cos(v[j]);
        if (dphase) dphase[f * n + j] += dv;
        dfrequency[j] += 2 * std::numbers::pi_v<T> * (dv * x);
    }
}

template <class T>
void columns_back(const Context<T>& at, std::size_t F, const std::int64_t* codes, const T* dy, Tensors<T>& gradients) {
    const Columns& c = at.op.columns;
    const std::size_t width = numeric_width(c);
    std::vector<T> dz(c.D), dinside(c.K);
    for (std::size_t b = 0; b < at.B; ++b, dy += at.op.d_out) {
        at.poll.throw_if_requested();
        const T *y = &at.y[b * at.op.d_out], *d = dy;
        for (std::size_t f = 0; f < F; ++f, d += width, y += width) {
            if (c.numeric == Numeric::none) continue;
            std::copy_n(d + (width - c.D), c.D, dz.data());
            for (std::size_t i = 0; c.numeric == Numeric::plr && i < c.D; ++i) dz[i] = y[i] > 0 ? dz[i] : T(0);
            encode_back(at, F, b, f, dz.data(), dinside.data(), gradients);
        }
        for (std::size_t i = 0; i < c.categories.size(); d += c.categories[i++].width) {
            T* table = gradient(gradients, c.categories[i].table);
            if (!table) continue;
            table += static_cast<std::size_t>(codes[b * c.categories.size() + i]) * c.categories[i].width;
            for (std::size_t j = 0; j < c.categories[i].width; ++j) table[j] += d[j];
        }
    }
}

}  // namespace multilayer::reference
