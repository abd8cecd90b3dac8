// Kernels for prediction. Values are rows (n, whole lines), and matrices are transposed, (I, O) in strips. A vector holds
// units of one row, so that a single row fills vectors as well as many rows do, and no row is converted to panels and back.
// Sums are the same chains as in forward (matrix_products.h), so the bits are those of a training core. The last column is
// the number of registers.
//
//     LANES   N = 4 lines     N = 3           N ≤ 2            one row            of
//     16      R = 6: 24+4+1   R = 6: 18+3+1   R = 12: 24+2+1   4 strips: 16+1+1   32
//     8       –               –               R = 6: 12+2+1    1 strip: 8+1+1     16
//     4       –               –               as forward       1 strip: 16+1+1    16 (two are spilled), 32
#pragma once

namespace {

// The number of rows of a tile over N lines of outputs.
template <std::size_t N>
constexpr std::size_t TALL = simd::REGISTERS >= 32 && LANES == 16 ? (N > 2 ? 6 : 12) : TALLEST<1>;

template <std::size_t R, std::size_t N>
inline void rows_tile(const Affine& a, const float* w, std::size_t width, std::size_t o, const float* x, std::size_t stride,
                      float* z, std::size_t stride_z) {
    Tile<R, N> tile;
    const bool plain = a.factor == 1.0f;
    UNROLL for (std::size_t j = 0; j < N * PER_PANEL; ++j) {
        const Vector first = plain ? simd::load(a.bias + o + j * LANES) : simd::splat(0.0f);
        UNROLL for (std::size_t i = 0; i < R; ++i) tile.sums[i][j] = first;
    }
    tile.accumulate({x, stride, 1, w, width, PANEL, a.d_in});
    const Vector factor = simd::splat(a.factor);
    tile.for_each([&](std::size_t i, std::size_t j, Vector sum) __attribute__((always_inline)) {
        if (!plain) sum = simd::multiply_add(factor, sum, simd::load(a.bias + o + j * LANES));
        simd::store(z + i * stride_z + j * LANES, sum);
    });
}

template <std::size_t N>
void rows_strip(const Affine& a, const float* w, std::size_t width, std::size_t o, const float* x, std::size_t stride,
                float* z, std::size_t stride_z, std::size_t n) {
    for (std::size_t b = 0; b < n;) {
        const std::size_t count = n - b < TALL<N> ? n - b : TALL<N>;
        with_rows<TALL<N>>(count, [&]<std::size_t R>() {
            rows_tile<R, N>(a, w, width, o, x + b * stride, stride, z + b * stride_z, stride_z);
        });
        b += count;
    }
}

// Computes one row, for S strips at a time. Each vector of outputs is a separate chain, so several chains run in
// parallel.
template <std::size_t S>
inline void row_strips(const Affine& a, const Strips& strips, std::size_t strip, const float* x, float* z) {
    constexpr std::size_t V = STRIP / LANES;
    const bool plain = a.factor == 1.0f;
    const float* w = a.weight + strips.first(strip);
    const std::size_t apart = STRIP * strips.rows;
    const float* bias = a.bias + strip * STRIP;
    Vector sums[S * V];
    UNROLL for (std::size_t j = 0; j < S * V; ++j) sums[j] = plain ? simd::load(bias + j * LANES) : simd::splat(0.0f);
    for (std::size_t k = 0; k < a.d_in; ++k, w += STRIP) {
        const Vector scalar = simd::splat(x[k]);
        UNROLL for (std::size_t j = 0; j < S * V; ++j) {
            sums[j] = simd::multiply_add(scalar, simd::load(w + j / V * apart + j % V * LANES), sums[j]);
        }
    }
    const Vector factor = simd::splat(a.factor);
    UNROLL for (std::size_t j = 0; j < S * V; ++j) {
        if (!plain) sums[j] = simd::multiply_add(factor, sums[j], simd::load(bias + j * LANES));
        simd::store(z + strip * STRIP + j * LANES, sums[j]);
    }
}

void forward_rows(const Affine& a, const float* x, std::size_t stride, float* z, std::size_t stride_z, std::size_t n) {
    const Strips strips{a.d_in, a.d_out};
    std::size_t strip = 0;
    if (n == 1) {
        constexpr std::size_t MOST = LANES == 16 ? 4 : 1;
        const std::size_t full = padded(a.d_out) / STRIP;
        for (; strip + MOST <= full; strip += MOST) row_strips<MOST>(a, strips, strip, x, z);
        if constexpr (MOST > 2) {
            if (strip + 2 <= full) row_strips<2>(a, strips, strip, x, z), strip += 2;
            if (strip < full) row_strips<1>(a, strips, strip, x, z), ++strip;
        }
    }
    for (; strip < strips.count(); ++strip) {
        const std::size_t width = strips.width(strip), o = strip * STRIP;
        const float* w = a.weight + strips.first(strip);
        if constexpr (WIDEST == 4) {
            if (width == 64) rows_strip<4>(a, w, width, o, x, stride, z + o, stride_z, n);
            if (width == 48) rows_strip<3>(a, w, width, o, x, stride, z + o, stride_z, n);
            if (width == 32) rows_strip<2>(a, w, width, o, x, stride, z + o, stride_z, n);
            if (width == 16) rows_strip<1>(a, w, width, o, x, stride, z + o, stride_z, n);
        } else {
            for (std::size_t i = 0; i < width; i += PANEL) {
                rows_strip<1>(a, w + i, width, o + i, x, stride, z + o + i, stride_z, n);
            }
        }
    }
}

template <Function function>
[[gnu::flatten]] void rows_as(const Pointwise& w, float* x, std::size_t stride, std::size_t n) {
    for (std::size_t b = 0; b < n; ++b) {
        float* __restrict z = x + b * stride;
        const float* __restrict learned = w.learned;
        const float* __restrict blend = w.blend;
        const float c = learned && !w.per_unit ? learned[0] : w.constant;
        const bool each = learned && w.per_unit;
        if (blend && each) {
            for (std::size_t u = 0; u < w.d; ++u) {
                z[u] = fma(blend[u], value_of<function>(z[u], learned[u]).f - z[u], z[u]);
            }
        } else if (blend) {
            for (std::size_t u = 0; u < w.d; ++u) z[u] = fma(blend[u], value_of<function>(z[u], c).f - z[u], z[u]);
        } else if (each) {
            for (std::size_t u = 0; u < w.d; ++u) z[u] = value_of<function>(z[u], learned[u]).f;
        } else {
            for (std::size_t u = 0; u < w.d; ++u) z[u] = value_of<function>(z[u], c).f;
        }
    }
}

template <Function function>
[[gnu::flatten]] void rows_lines(const Pointwise& w, float* x, std::size_t stride, std::size_t n) {
    for (std::size_t b = 0; b < n; ++b) {
        for (std::size_t u = 0; u < w.d; u += PANEL) {
            float* z = x + b * stride + u;
            const std::size_t count = w.d - u < PANEL ? w.d - u : PANEL;
            alignas(64) float f[PANEL], slope[PANEL];
            values_of<function>(z, count, w.constant, f, slope);
            for (std::size_t i = 0; i < count; ++i) z[i] = w.blend ? fma(w.blend[u + i], f[i] - z[i], z[i]) : f[i];
        }
    }
}

template <>
void rows_as<Function::polynomial>(const Pointwise& w, float* x, std::size_t stride, std::size_t n) {
    rows_lines<Function::polynomial>(w, x, stride, n);
}

template <>
void rows_as<Function::sin>(const Pointwise& w, float* x, std::size_t stride, std::size_t n) {
    rows_lines<Function::sin>(w, x, stride, n);
}

void pointwise_rows(const Pointwise& w, float* x, std::size_t stride, std::size_t n) {
    with_function(w.function, [&]<Function function>() { rows_as<function>(w, x, stride, n); });
}

// z (n, 2·O) → y (n, O). The second half of z starts after O values.
[[gnu::flatten]] void gate_rows(Function function, std::size_t d, const float* z, std::size_t stride, float* y,
                                std::size_t stride_y, std::size_t n) {
    with_gate(function, [&](auto value) {
        for (std::size_t b = 0; b < n; ++b) {
            const float *__restrict z1 = z + b * stride, *__restrict z2 = z1 + d;
            float* __restrict to = y + b * stride_y;
            for (std::size_t u = 0; u < d; ++u) to[u] = value(z1[u]).f * z2[u];
        }
    });
}

// Embeds the features of one row, like `embed` of columns.h for sixteen rows.
void embed_row(const Embedding& w, const float* x, float* y) {
    constexpr std::size_t MOST = 64;  // hidden values that are computed at a time
    for (std::size_t f = 0; f < w.F; ++f, y += w.width) {
        float* to = y;
        if (w.numeric == Numeric::none) {
            to[0] = x[f];
            continue;
        }
        if (w.numeric == Numeric::pbld) *to++ = x[f];
        for (std::size_t d = 0; d < w.D; ++d) to[d] = w.bias[f * w.D + d];
        const bool both = w.numeric == Numeric::plr;
        const float* weight = w.weight + f * w.K * w.D;  // (K, D)
        // plr: first all cosines, then all sines, which is the order of `embed`.
        for (std::size_t first = 0; first < w.K; first += MOST) {
            alignas(64) float inside[MOST], angle[MOST], sine[MOST];
            const std::size_t count = w.K - first < MOST ? w.K - first : MOST;
            if (w.numeric == Numeric::piecewise) {
                const float* edges = w.edges + f * (w.n + 1);
                for (std::size_t i = 0; i < count; ++i) {
                    const std::size_t k = first + i;
                    const float low = edges[k], span = edges[k + 1] - edges[k];
                    const float least = k == 0 ? -__builtin_inff() : 0.0f, most = k + 1 == w.n ? __builtin_inff() : 1.0f;
                    const float t = (x[f] - low) / span;
                    inside[i] = t < least ? least : t > most ? most : t;
                }
            } else if (both) {
                for (std::size_t i = 0; i < count; ++i) {
                    angle[i] = TWO_PI * x[f] * w.frequency[f * w.n + (first + i) % w.n] + 0.0f;
                }
                circles(angle, count, sine, inside);
                for (std::size_t i = 0; i < count; ++i) inside[i] = first + i < w.n ? inside[i] : sine[i];
            } else {
                const float *c = w.frequency + f * w.n + first, *phase = w.phase + f * w.n + first;
                for (std::size_t i = 0; i < count; ++i) angle[i] = TWO_PI * x[f] * c[i] + phase[i];
                circles(angle, count, sine, inside);
            }
            for (std::size_t i = 0; i < count; ++i) {
                const float* row = weight + (first + i) * w.D;
                for (std::size_t d = 0; d < w.D; ++d) to[d] = fma(row[d], inside[i], to[d]);
            }
        }
        if (both) {
            for (std::size_t d = 0; d < w.D; ++d) to[d] = to[d] < 0.0f ? 0.0f : to[d];
        }
    }
}

}  // namespace
