// The matrix tile of forward, backward and gradient, and the loops over tiles.
//
//     sum[i][j] += scalar[i] · vector[j]      for each t, in order; i < R, j < N · (16 / LANES)
//
// Registers: the sums, one row of vectors, and one broadcast scalar. The last column is the number of registers.
//
//     LANES   N = 4 panels    N = 2            N = 1            of
//     16      R = 6: 24+4+1   R = 12: 24+2+1   R = 12: 12+1+1   32
//     8       –               –                R = 6: 12+2+1    16
//     4       –               –                R = 2: 8+4+1     16, plus the product, because SSE has no multiply-add
//     4       –               –                R = 3: 12+4+1    32 (NEON)
#pragma once

namespace {

using simd::LANES;
using simd::Vector;

constexpr std::size_t PER_PANEL = PANEL / LANES;                  // vectors
constexpr std::size_t WIDEST = simd::REGISTERS >= 32 && LANES == 16 ? TILE_PANELS : 1;  // panels at once

// Scalars are s[i · row + t · step]. Vectors are v[t · along + j · across] for panel (or line) j.
struct TileOperands {
    const float* s;
    std::size_t row, step;
    const float* v;
    std::size_t along, across;
    std::size_t depth;
};

template <std::size_t R, std::size_t N>
struct Tile {
    static constexpr std::size_t V = N * PER_PANEL;
    Vector sums[R][V];

    [[gnu::always_inline]] inline void initialise(const float* first) {
        UNROLL for (std::size_t i = 0; i < R; ++i) {
            const Vector value = simd::splat(first ? first[i] : 0.0f);
            UNROLL for (std::size_t j = 0; j < V; ++j) sums[i][j] = value;
        }
    }

    [[gnu::always_inline]] inline void accumulate(const TileOperands& w) {
        const float *s = w.s, *v = w.v;
        const std::size_t row = w.row, across = w.across;
        for (std::size_t t = 0; t < w.depth; ++t, s += w.step, v += w.along) {
            Vector x[V];
            UNROLL for (std::size_t j = 0; j < V; ++j) {
                x[j] = simd::load(v + j / PER_PANEL * across + j % PER_PANEL * LANES);
            }
            UNROLL for (std::size_t i = 0; i < R; ++i) {
                const Vector a = simd::splat(s[i * row]);
                UNROLL for (std::size_t j = 0; j < V; ++j) sums[i][j] = simd::multiply_add(a, x[j], sums[i][j]);
            }
        }
    }

    // Calls take(i, j, vector), where j counts the vectors of the tile.
    template <class Take>
    [[gnu::always_inline]] inline void for_each(Take take) {
        UNROLL for (std::size_t i = 0; i < R; ++i) {
            UNROLL for (std::size_t j = 0; j < V; ++j) take(i, j, sums[i][j]);
        }
    }
};

// The number of rows of a tile over N panels.
template <std::size_t N>
constexpr std::size_t TALLEST = simd::REGISTERS >= 32 && LANES == 16 ? (N == 4 ? 6 : 12)
                                : LANES == 8                           ? 6
                                : simd::REGISTERS >= 32                ? 3
                                                                       : 2;

// Splits units u0 .. u1 into tiles of N panels, and calls f<R>(first unit).
template <std::size_t N, class F>
inline void over_units(std::size_t u0, std::size_t u1, F f) {
    constexpr std::size_t MOST = TALLEST<N>;
    for (std::size_t u = u0; u < u1;) {
        const std::size_t rows = u1 - u < MOST ? u1 - u : MOST;
        with_rows<MOST>(rows, [&]<std::size_t R>() { f.template operator()<R>(u); });
        u += rows;
    }
}

// Splits panels into groups of 4, 2 and 1, and calls f<N>(first panel).
template <class F>
inline void over_panels(std::size_t p0, std::size_t p1, F f) {
    std::size_t p = p0;
    if constexpr (WIDEST == 4) {
        for (; p + 4 <= p1; p += 4) f.template operator()<4>(p);
        if (p + 2 <= p1) f.template operator()<2>(p), p += 2;
    }
    for (; p < p1; ++p) f.template operator()<1>(p);
}

void forward(const Affine& a, const float* x, float* z, Region part) {
    const std::size_t size_x = a.d_in * PANEL, size_z = a.d_out * PANEL;
    const Strips strips{a.d_out, a.d_in};
    const bool plain = a.factor == 1.0f;
    const Vector factor = simd::splat(a.factor);
    over_panels(part.p0, part.p1, [&]<std::size_t N>(std::size_t p) {
        over_units<N>(part.u0, part.u1, [&]<std::size_t R>(std::size_t u) {
            Tile<R, N> tile;
            tile.initialise(plain && a.bias ? a.bias + u : nullptr);
            for (std::size_t k = 0; k < a.d_in; k += STRIP) {
                const std::size_t width = strips.width(k / STRIP), depth = a.d_in - k < STRIP ? a.d_in - k : STRIP;
                const float* scalars = a.weight + strips.first(k / STRIP) + u * width;
                tile.accumulate({scalars, width, 1, x + p * size_x + k * PANEL, PANEL, size_x, depth});
            }
            float* out = z + p * size_z + u * PANEL;
            tile.for_each([&](std::size_t i, std::size_t j, Vector sum) __attribute__((always_inline)) {
                if (!plain) {
                    sum = simd::multiply_add(factor, sum, simd::splat(a.bias ? a.bias[u + i] : 0.0f));
                }
                simd::store(out + i * PANEL + j / PER_PANEL * size_z + j % PER_PANEL * LANES, sum);
            });
        });
    });
}

// The region must lie within one strip.
void backward(const Affine& a, const float* delta, float* dx, Region part) {
    const std::size_t size_d = a.d_out * PANEL, size_x = a.d_in * PANEL;
    const Strips strips{a.d_out, a.d_in};
    const std::size_t strip = part.u0 / STRIP, width = strips.width(strip);
    const float* weight = a.weight + strips.first(strip);
    const Vector factor = simd::splat(a.factor);
    over_panels(part.p0, part.p1, [&]<std::size_t N>(std::size_t p) {
        over_units<N>(part.u0, part.u1, [&]<std::size_t R>(std::size_t u) {
            Tile<R, N> tile;
            tile.initialise(nullptr);
            tile.accumulate({weight + u % STRIP, 1, width, delta + p * size_d, PANEL, size_d, a.d_out});
            float* out = dx + p * size_x + u * PANEL;
            tile.for_each([&](std::size_t i, std::size_t j, Vector sum) __attribute__((always_inline)) {
                float* to = out + i * PANEL + j / PER_PANEL * size_x + j % PER_PANEL * LANES;
                if (a.factor != 1.0f) sum = simd::multiply(factor, sum);
                simd::store(to, sum);
            });
        });
    });
}

inline Vector16 add_squares(const float* g, std::size_t n, Vector16 squares) {
    for (std::size_t j = 0; j < n; j += PANEL) {
        const Vector16 x = load16(g + j);
        squares = fma(x, x, squares);
    }
    return squares;
}

void square_sums(const float* g, Strips matrix, bool upwards, float* squares) {
    for (std::size_t o = 0; o < matrix.rows; ++o) {
        Vector16 sum = splat16(0.0f);
        for (std::size_t i = 0; i < matrix.count(); ++i) {
            const std::size_t strip = upwards ? matrix.count() - 1 - i : i;
            sum = add_squares(g + matrix.at(o, strip * STRIP), matrix.width(strip), sum);
        }
        squares[o * PANEL] = sum16(sum);
    }
}

// A tile of gradients that is not applied yet. It is applied line by line.
struct Pending {
    const float* g = nullptr;
    std::size_t at = 0, left = 0;  // position of the next line in the matrix; remaining lines
};

// Applies the next line of a pending tile. It is inlined into the loop over the batch, so that its divisions, roots and
// memory accesses overlap with the products of the next tile.
template <bool extras>
[[gnu::always_inline]] inline void apply_line(const WeightGradient& w, Pending& p) {
    update_as<OptimizerKind::adam, extras, false>(*w.update, PANEL, p.g, w.arrays.value + p.at, w.arrays.slot0 + p.at,
                                                  w.arrays.slot1 + p.at, nullptr);
    p.g += PANEL, p.at += PANEL, --p.left;
}

// Rows of the batch between two lines of the update.
constexpr std::size_t BETWEEN = 8;

// Sums R rows of N lines over the batch into g (R, N · 16), and applies the pending tile meanwhile.
template <std::size_t R, std::size_t N, int interleaved>
inline void gradient_tile(const WeightGradient& w, std::size_t o, const float* x, std::size_t width, float* g,
                          Pending& waiting) {
    Tile<R, N> tile;
    tile.initialise(nullptr);
    const std::size_t rounds = (w.batch + BETWEEN - 1) / BETWEEN;
    const std::size_t each = rounds ? (waiting.left + rounds - 1) / rounds : 0;
    // Within a panel, δ of a unit is a line, and b is the position in the line.
    for (std::size_t b = 0; b < w.batch; b += BETWEEN) {
        if (b == w.split && b > 0) {
            tile.for_each([&](std::size_t i, std::size_t j, Vector sum) __attribute__((always_inline)) {
                simd::store(g + i * (N * PANEL) + j * LANES, sum);
            });
            tile.initialise(nullptr);
        }
        const std::size_t depth = w.batch - b < BETWEEN ? w.batch - b : BETWEEN;
        const float* delta = w.delta + b / PANEL * PANEL * w.d_out + o * PANEL + b % PANEL;
        tile.accumulate({delta, PANEL, 1, x + b * width, width, PANEL, depth});
        if constexpr (interleaved != 0) {
            for (std::size_t i = 0; i < each && waiting.left; ++i) apply_line<interleaved == 2>(w, waiting);
        }
    }
    const Vector factor = simd::splat(w.factor);
    tile.for_each([&](std::size_t i, std::size_t j, Vector sum) __attribute__((always_inline)) {
        float* to = g + i * (N * PANEL) + j * LANES;
        if (w.split) sum = simd::add(simd::load(to), sum);
        simd::store(to, simd::multiply(sum, factor));
    });
}

// Processes n values of the gradient of row o at position `at` of the matrix: adds their squares, and stores or applies
// them. If `now` is false, they are applied during the next tile.
inline void take_row(const WeightGradient& w, std::size_t o, std::size_t at, const float* g, std::size_t n, bool now) {
    if (w.squares) store16(w.squares + o * PANEL, add_squares(g, n, load16(w.squares + o * PANEL)));
    if (w.gradient) {
        for (std::size_t j = 0; j < n; ++j) w.gradient[at + j] = g[j];
    }
    if (now) {
        const ParameterArrays& p = w.arrays;
        update(*w.update, n, g,
               {p.value + at, p.slot0 ? p.slot0 + at : nullptr, p.slot1 ? p.slot1 + at : nullptr,
                p.average ? p.average + at : nullptr});
    }
}

// Calls f(strip) for all strips, in the order of this step.
template <class F>
inline void over_strips(const WeightGradient& w, std::size_t o0, std::size_t o1, F f) {
    const std::size_t count = Strips{w.d_out, w.d_in}.count();
    for (std::size_t o = o0; w.squares && o < o1; ++o) store16(w.squares + o * PANEL, splat16(0.0f));
    for (std::size_t i = 0; i < count; ++i) f(w.upwards ? count - 1 - i : i);
    for (std::size_t o = o0; w.squares && o < o1; ++o) w.squares[o * PANEL] = sum16(load16(w.squares + o * PANEL));
}

// Lines of a tile: a whole strip if there are enough registers, otherwise a part of it.
constexpr std::size_t LINES = WIDEST;
constexpr std::size_t DELTAS = TALLEST<LINES>;

template <std::size_t N>
void strip_gradient(const WeightGradient& w, std::size_t line, std::size_t o0, std::size_t o1) {
    const Strips matrix{w.d_out, w.d_in}, rows{w.capacity, w.d_in};
    const std::size_t strip = line * PANEL / STRIP, inside = line * PANEL % STRIP, width = matrix.width(strip);
    const float* x = w.rows + rows.first(strip) + w.first_row * width + inside;
    const bool adam = w.update && w.update->kind == OptimizerKind::adam && w.update->average < 0.0f;
    // The lines of a tile are contiguous only if the tile is as wide as its strip.
    const int interleaved = !adam || width != N * PANEL ? 0 : has_extras(*w.update) ? 2 : 1;
    alignas(64) float tiles[2][DELTAS * N * PANEL];
    Pending waiting;
    std::size_t turn = 0;
    for (std::size_t o = o0; o < o1; o += DELTAS) {
        const std::size_t count = o1 - o < DELTAS ? o1 - o : DELTAS;
        float* g = tiles[turn ^= 1];
        with_rows<DELTAS>(count, [&]<std::size_t R>() {
            if (interleaved == 1) {
                gradient_tile<R, N, 1>(w, o, x, width, g, waiting);
            } else if (interleaved == 2) {
                gradient_tile<R, N, 2>(w, o, x, width, g, waiting);
            } else {
                gradient_tile<R, N, 0>(w, o, x, width, g, waiting);
            }
        });
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t at = matrix.first(strip) + (o + i) * width + inside;
            take_row(w, o + i, at, g + i * (N * PANEL), N * PANEL, w.update && !interleaved);
        }
        if (interleaved) waiting = {g, matrix.first(strip) + o * width, count * N};
    }
    while (waiting.left) interleaved == 2 ? apply_line<true>(w, waiting) : apply_line<false>(w, waiting);
}

void weight_gradient(const WeightGradient& w, std::size_t o0, std::size_t o1) {
    const Strips matrix{w.d_out, w.d_in};
    over_strips(w, o0, o1, [&](std::size_t strip) {
        const std::size_t first = strip * STRIP / PANEL, lines = matrix.width(strip) / PANEL;
        if constexpr (LINES == 4) {
            if (lines == 4) strip_gradient<4>(w, first, o0, o1);
            if (lines == 3) strip_gradient<3>(w, first, o0, o1);
            if (lines == 2) strip_gradient<2>(w, first, o0, o1);
            if (lines == 1) strip_gradient<1>(w, first, o0, o1);
        } else {
            for (std::size_t line = 0; line < lines; ++line) strip_gradient<1>(w, first + line, o0, o1);
        }
    });
}

void join_gradient(const WeightGradient& w, const float* first, const float* second, std::size_t o0, std::size_t o1) {
    const Strips matrix{w.d_out, w.d_in};
    over_strips(w, o0, o1, [&](std::size_t strip) {
        const std::size_t width = matrix.width(strip);
        for (std::size_t o = o0; o < o1; ++o) {
            const std::size_t at = matrix.first(strip) + o * width;
            alignas(64) float g[STRIP];
            for (std::size_t j = 0; j < width; j += PANEL) {
                store16(g + j, (load16(first + at + j) + load16(second + at + j)) * splat16(w.factor));
            }
            take_row(w, o, at, g, width, w.update != nullptr);
        }
    });
}

// Transposes a square of 16 rows and 16 units.
void to_rows(const float* x, Strips rows, float* to, Region part) {
    const std::size_t d = rows.columns;
    for (std::size_t p = part.p0; p < part.p1; ++p) {
        for (std::size_t u = part.u0; u < part.u1; u += PANEL) {
            const std::size_t width = rows.width(u / STRIP);
            const float* from = x + (p * d + u) * PANEL;
            float* here = to + rows.at(p * PANEL, u);
            if (u + PANEL <= d) {
                simd::transpose16(from, PANEL, here, width);
            } else {
                for (std::size_t b = 0; b < PANEL; ++b) {
                    for (std::size_t i = 0; i < PANEL; ++i) here[b * width + i] = u + i < d ? from[i * PANEL + b] : 0.0f;
                }
            }
        }
    }
}

void to_panels(const float* from, Strips rows, float* x, Region part) {
    const std::size_t d = rows.columns;
    for (std::size_t p = part.p0; p < part.p1; ++p) {
        for (std::size_t u = part.u0; u < part.u1; u += PANEL) {
            const std::size_t width = rows.width(u / STRIP);
            const float* here = from + rows.at(p * PANEL, u);
            float* to = x + (p * d + u) * PANEL;
            if (u + PANEL <= d) {
                simd::transpose16(here, width, to, PANEL);
            } else {
                for (std::size_t i = 0; u + i < d; ++i) {
                    for (std::size_t b = 0; b < PANEL; ++b) to[i * PANEL + b] = here[b * width + i];
                }
            }
        }
    }
}

}  // namespace
