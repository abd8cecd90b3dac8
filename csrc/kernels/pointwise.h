// Activations and dropout, in place on panels. Slopes are computed in the forward pass, so the backward pass is one
// product for every function. For dropout masks, each lane is a row, so a block of the random stream gives four units
// of sixteen rows.
//
// Loops over a function are flattened, because a loop with a function call is not vectorized.
//
// Registers: activations stream, with the registers of maths.h. A block of the random stream needs 4 words of 2 × 2
// vectors, 2 multipliers, 2 keys and 2 products: 22 of 32. With 16 registers, some words are spilled.
#pragma once

namespace {

// Calls f.template operator()<function>() for the given function.
template <class F>
inline void with_function(Function function, F f) {
    switch (function) {
#define CASE(name) \
    case Function::name: return f.template operator()<Function::name>();
        MULTILAYER_FUNCTIONS(CASE)
#undef CASE
    }
}

// Calls f(value), where `value` computes the given gate.
template <class F>
inline void with_gate(Function function, F f) {
    switch (function) {
        case Function::sigmoid: return f([](float x) { return value_of<Function::sigmoid>(x, 1.0f); });
        case Function::relu: return f([](float x) { return value_of<Function::relu>(x, 0.0f); });
        case Function::gelu: return f([](float x) { return value_of<Function::gelu>(x, 0.0f); });
        default: return f([](float x) { return value_of<Function::silu>(x, 1.0f); });
    }
}

constexpr std::size_t AT_ONCE = 2;  // blocks of the stream; a single one would wait for the result of its last round

// Writes words (8, 16) for eight units of sixteen rows: blocks `block` and `block` + 1 of the random stream. It is
// philox_round (runtime/random.h) on vectors of several rows, where products use the low halves.
inline void philox_lines(std::uint32_t block, const std::uint32_t* ids, std::uint32_t epoch, std::uint32_t last,
                         std::uint64_t seed, std::uint32_t* words) {
    using simd::Words, simd::WORDS;
    const Words m0 = simd::splat_words(0xD2511F53), m1 = simd::splat_words(0xCD9E8D57);
    constexpr std::size_t PARTS = 2;  // vectors of rows at a time
    for (std::size_t l = 0; l < PANEL; l += PARTS * WORDS) {
        Words x[AT_ONCE * PARTS][4];
        UNROLL for (std::size_t i = 0; i < AT_ONCE * PARTS; ++i) {
            x[i][0] = simd::splat_words(block + static_cast<std::uint32_t>(i / PARTS));
            x[i][1] = simd::load_words(ids + l + i % PARTS * WORDS);
            x[i][2] = simd::splat_words(epoch), x[i][3] = simd::splat_words(last);
        }
        RoundKey key(seed);
        for (int round = 0; round < PHILOX_ROUNDS; ++round, key.advance()) {
            const Words k0 = simd::splat_words(key.k0), k1 = simd::splat_words(key.k1);
            UNROLL for (std::size_t i = 0; i < AT_ONCE * PARTS; ++i) {
                const Words p0 = simd::multiply_words(x[i][0], m0), p1 = simd::multiply_words(x[i][2], m1);
                x[i][0] = simd::xor_words(simd::high_words(p1), x[i][1], k0);
                x[i][2] = simd::xor_words(simd::high_words(p0), x[i][3], k1);
                x[i][1] = p1, x[i][3] = p0;
            }
        }
        UNROLL for (std::size_t i = 0; i < AT_ONCE * PARTS; ++i) {
            UNROLL for (std::size_t j = 0; j < 4; ++j) {
                simd::store_words(words + (i / PARTS * 4 + j) * PANEL + l + i % PARTS * WORDS, x[i][j]);
            }
        }
    }
}

inline void drop(const Pointwise& w, float* x, std::size_t p, std::size_t u0, std::size_t u1) {
    const std::uint32_t last = static_cast<std::uint32_t>(Purpose::dropout) << 24 | w.part;
    float* const kept[4] = {x, w.slope, w.d_learned, w.d_blend};
    // Words are below 2³², so a threshold of 2³² drops all values.
    const auto threshold = static_cast<std::uint32_t>(w.threshold);
    const float worth = w.threshold > 0xFFFFFFFFu ? 0.0f : w.kept;
    for (std::size_t u = u0; u < u1; u += 4 * AT_ONCE) {
        alignas(64) std::uint32_t words[4 * AT_ONCE * PANEL];
        alignas(64) float mask[4 * AT_ONCE * PANEL];
        philox_lines(static_cast<std::uint32_t>(u / 4), w.ids + p * PANEL, w.epoch, last, w.seed, words);
        const std::size_t n = (u1 - u < 4 * AT_ONCE ? u1 - u : 4 * AT_ONCE) * PANEL;
        for (std::size_t i = 0; i < 4 * AT_ONCE * PANEL; ++i) mask[i] = words[i] >= threshold ? worth : 0.0f;
        for (float* values : kept) {
            if (!values) continue;
            float* __restrict line = values + (p * w.d + u) * PANEL;
            for (std::size_t i = 0; i < n; ++i) line[i] *= mask[i];
        }
    }
}

// Processes a line of a unit that has its own c, α or both. `slope` is null for prediction. There are only registers
// between load and store: with arrays in between, the blend alone took longer than the function.
template <Function function, bool blends>
[[gnu::always_inline]] inline void own_line(float c, float alpha, float* __restrict z, float* __restrict slope,
                                            float* __restrict d_learned, float* __restrict d_blend) {
    if (d_learned) {
        for (std::size_t l = 0; l < PANEL; ++l) d_learned[l] = alpha * learned_slope<function>(z[l], c);
    }
    const auto blended = [=](Value v, float from) -> Value {
        if constexpr (!blends) return v;
        return {fma(alpha, v.f - from, from), fma(alpha, v.slope - 1.0f, 1.0f)};
    };
    if (slope && d_blend) {
        for (std::size_t l = 0; l < PANEL; ++l) {
            const Value v = value_of<function>(z[l], c), a = blended(v, z[l]);
            d_blend[l] = v.f - z[l], slope[l] = a.slope, z[l] = a.f;
        }
    } else if (slope) {
        for (std::size_t l = 0; l < PANEL; ++l) {
            const Value a = blended(value_of<function>(z[l], c), z[l]);
            slope[l] = a.slope, z[l] = a.f;
        }
    } else {
        for (std::size_t l = 0; l < PANEL; ++l) z[l] = blended(value_of<function>(z[l], c), z[l]).f;
    }
}

template <Function function>
[[gnu::flatten]] void pointwise_as(const Pointwise& w, float* x, Region part) {
    for (std::size_t p = part.p0; p < part.p1; ++p) {
        if (!w.learned && !w.blend) {  // a single loop over all lines
            const std::size_t first = (p * w.d + part.u0) * PANEL, n = (part.u1 - part.u0) * PANEL;
            float* __restrict z = x + first;
            const float c = w.constant;
            if (w.slope) {
                float* __restrict slope = w.slope + first;
                for (std::size_t i = 0; i < n; ++i) {
                    const Value v = value_of<function>(z[i], c);
                    z[i] = v.f, slope[i] = v.slope;
                }
            } else {
                for (std::size_t i = 0; i < n; ++i) z[i] = value_of<function>(z[i], c).f;
            }
        } else {
            for (std::size_t u = part.u0; u < part.u1; ++u) {
                const std::size_t at = (p * w.d + u) * PANEL;
                const float c = w.learned ? w.learned[w.per_unit ? u : 0] : w.constant;
                float* const slope = w.slope ? w.slope + at : nullptr;
                float* const d_learned = w.d_learned ? w.d_learned + at : nullptr;
                float* const d_blend = w.d_blend ? w.d_blend + at : nullptr;
                if (w.blend) {
                    own_line<function, true>(c, w.blend[u], x + at, slope, d_learned, d_blend);
                } else {
                    own_line<function, false>(c, 1.0f, x + at, slope, d_learned, d_blend);
                }
            }
        }
    }
}

template <Function function>
[[gnu::flatten]] void pointwise_lines(const Pointwise& w, float* x, Region part) {
    for (std::size_t p = part.p0; p < part.p1; ++p) {
        for (std::size_t u = part.u0; u < part.u1; ++u) {
            const std::size_t at = (p * w.d + u) * PANEL;
            const float alpha = w.blend ? w.blend[u] : 1.0f;
            alignas(64) float f[PANEL], slope[PANEL];
            values_of<function>(x + at, PANEL, w.constant, f, slope);
            for (std::size_t l = 0; l < PANEL; ++l) {
                const float z = x[at + l];
                if (w.d_blend) w.d_blend[at + l] = f[l] - z;
                x[at + l] = w.blend ? fma(alpha, f[l] - z, z) : f[l];
                if (w.slope) w.slope[at + l] = w.blend ? fma(alpha, slope[l] - 1.0f, 1.0f) : slope[l];
            }
        }
    }
}

template <>
void pointwise_as<Function::polynomial>(const Pointwise& w, float* x, Region part) {
    pointwise_lines<Function::polynomial>(w, x, part);
}

template <>
void pointwise_as<Function::sin>(const Pointwise& w, float* x, Region part) {
    pointwise_lines<Function::sin>(w, x, part);
}

// Adds to the counts of the units. Bit l of a mask stands for row l of the panel.
template <bool inactive, bool flat, bool high>
void count_as(const UnitCounter& c, std::size_t d, const float* x, Region part) {
    const Vector16 inactive_low = splat16(c.inactive_low), inactive_high = splat16(c.inactive_high);
    const Vector16 flat_low = splat16(c.flat_low), flat_high = splat16(c.flat_high);
    for (std::size_t p = part.p0; p < part.p1; ++p) {
        const std::size_t rows = c.rows - p * PANEL;
        const std::uint32_t counted = rows < PANEL ? (1u << rows) - 1 : 0xFFFF;  // without the padding
        for (std::size_t u = part.u0; u < part.u1; ++u) {
            const Vector16 z = load16(x + (p * d + u) * PANEL);
            if constexpr (inactive) {
                std::uint32_t found = at_most(z, inactive_low);
                if constexpr (high) found |= at_most(inactive_high, z);
                c.inactive[u] += __builtin_popcount(found & counted);
            }
            if constexpr (flat) {
                std::uint32_t found = below(z, flat_low);
                if constexpr (high) found |= below(flat_high, z);
                c.flat[u] += __builtin_popcount(found & counted);
            }
        }
    }
}

void count(const UnitCounter& c, std::size_t d, const float* x, Region part) {
    const bool high = c.inactive_high == c.inactive_high || c.flat_high == c.flat_high;  // not NaN
    const auto with_high = [&]<bool inactive, bool flat>() {
        high ? count_as<inactive, flat, true>(c, d, x, part) : count_as<inactive, flat, false>(c, d, x, part);
    };
    if (c.inactive && c.flat) return with_high.template operator()<true, true>();
    if (c.inactive) return with_high.template operator()<true, false>();
    with_high.template operator()<false, true>();
}

void pointwise(const Pointwise& w, float* x, Region part) {
    if (w.counter.inactive || w.counter.flat) count(w.counter, w.d, x, part);
    with_function(w.function, [&]<Function function>() { pointwise_as<function>(w, x, part); });
    if (w.drops) {
        for (std::size_t p = part.p0; p < part.p1; ++p) drop(w, x, p, part.u0, part.u1);
    }
}

void pointwise_backward(const Pointwise& w, float* g, Region part) {
    for (std::size_t p = part.p0; p < part.p1; ++p) {
        const std::size_t first = (p * w.d + part.u0) * PANEL, n = (part.u1 - part.u0) * PANEL;
        float* __restrict to = g + first;
        for (float* learned : {w.d_learned, w.d_blend}) {
            if (!learned) continue;
            float* __restrict slope = learned + first;
            for (std::size_t i = 0; i < n; ++i) slope[i] *= to[i];
        }
        const float* __restrict slope = w.slope + first;
        for (std::size_t i = 0; i < n; ++i) to[i] *= slope[i];
    }
}

[[gnu::flatten]] void gate(Function function, std::size_t d, float* z, float* y, Region part, bool train) {
    with_gate(function, [&](auto value) {
        for (std::size_t p = part.p0; p < part.p1; ++p) {
            float* __restrict z1 = z + (2 * p * d + part.u0) * PANEL;
            float* __restrict z2 = z1 + d * PANEL;
            float* __restrict to = y + (p * d + part.u0) * PANEL;
            const std::size_t n = (part.u1 - part.u0) * PANEL;
            for (std::size_t i = 0; i < n; ++i) {
                const Value v = value(z1[i]);
                to[i] = v.f * z2[i];
                if (train) z1[i] = v.slope * z2[i], z2[i] = v.f;
            }
        }
    });
}

// dz₁ = g ⊙ dy/dz₁ and dz₂ = g ⊙ dy/dz₂. dz may be the same memory as `slopes`.
void gate_backward(std::size_t d, const float* slopes, const float* g, float* dz, Region part) {
    for (std::size_t p = part.p0; p < part.p1; ++p) {
        for (std::size_t half = 0; half < 2; ++half) {
            const std::size_t first = ((2 * p + half) * d + part.u0) * PANEL;
            const float* from = g + (p * d + part.u0) * PANEL;
            for (std::size_t i = 0; i < (part.u1 - part.u0) * PANEL; ++i) dz[first + i] = slopes[first + i] * from[i];
        }
    }
}

void add(std::size_t d, const float* x, float* y, Region part) {
    for (std::size_t p = part.p0; p < part.p1; ++p) {
        const std::size_t first = (p * d + part.u0) * PANEL, n = (part.u1 - part.u0) * PANEL;
        for (std::size_t i = 0; i < n; ++i) y[first + i] += x[first + i];
    }
}

void copy(std::size_t d, const float* x, float* y, Region part) {
    for (std::size_t p = part.p0; p < part.p1; ++p) {
        const std::size_t first = (p * d + part.u0) * PANEL, n = (part.u1 - part.u0) * PANEL;
        for (std::size_t i = 0; i < n; ++i) y[first + i] = x[first + i];
    }
}

}  // namespace
