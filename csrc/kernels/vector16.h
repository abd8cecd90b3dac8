// Vector16, or a line: one value of each of the sixteen rows of a panel, in registers. It is for sums down a panel.
// Loops over single values are vectorized by the compiler.
//
// Registers: a line takes 16 / LANES registers, which is 1, 2 or 4. sum_panels keeps eight registers of sums for every
// width and loads two more lines: 10 of 32 registers, 12 of 16, and all 16 with LANES = 4. sums16 holds eight lines,
// which spill if a line takes four registers.
#pragma once

namespace {

struct Vector16 {
    simd::Vector v[PANEL / simd::LANES];
};

inline Vector16 splat16(float a) {
    Vector16 x;
    UNROLL for (simd::Vector& v : x.v) v = simd::splat(a);
    return x;
}

inline Vector16 load16(const float* p) {
    Vector16 x;
    UNROLL for (std::size_t i = 0; i < PANEL / simd::LANES; ++i) x.v[i] = simd::load(p + i * simd::LANES);
    return x;
}

inline void store16(float* p, const Vector16& x) {
    UNROLL for (std::size_t i = 0; i < PANEL / simd::LANES; ++i) simd::store(p + i * simd::LANES, x.v[i]);
}

inline Vector16 operator+(Vector16 a, const Vector16& b) {
    UNROLL for (std::size_t i = 0; i < PANEL / simd::LANES; ++i) a.v[i] = simd::add(a.v[i], b.v[i]);
    return a;
}

inline Vector16 operator-(Vector16 a, const Vector16& b) {
    UNROLL for (std::size_t i = 0; i < PANEL / simd::LANES; ++i) a.v[i] = simd::subtract(a.v[i], b.v[i]);
    return a;
}

inline Vector16 operator*(Vector16 a, const Vector16& b) {
    UNROLL for (std::size_t i = 0; i < PANEL / simd::LANES; ++i) a.v[i] = simd::multiply(a.v[i], b.v[i]);
    return a;
}

// a b + c, like `fma` of maths.h.
inline Vector16 fma(Vector16 a, const Vector16& b, const Vector16& c) {
    UNROLL for (std::size_t i = 0; i < PANEL / simd::LANES; ++i) a.v[i] = simd::multiply_add(a.v[i], b.v[i], c.v[i]);
    return a;
}

// The lanes with a ≤ b, or a < b, as bits. Comparisons with NaN are false.
inline std::uint32_t at_most(const Vector16& a, const Vector16& b) {
    std::uint32_t lanes = 0;
    UNROLL for (std::size_t i = 0; i < PANEL / simd::LANES; ++i) lanes |= simd::at_most(a.v[i], b.v[i]) << i * simd::LANES;
    return lanes;
}

inline std::uint32_t below(const Vector16& a, const Vector16& b) {
    std::uint32_t lanes = 0;
    UNROLL for (std::size_t i = 0; i < PANEL / simd::LANES; ++i) lanes |= simd::below(a.v[i], b.v[i]) << i * simd::LANES;
    return lanes;
}

// The sum of a line by repeated halving, in the same order for every instruction set.
inline float sum16(const Vector16& line) {
    alignas(64) float x[PANEL], a[8];
    store16(x, line);
    for (std::size_t i = 0; i < 8; ++i) a[i] = x[i] + x[i + 8];
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

// The sums of sixteen consecutive lines, each with the bits of sum16.
inline Vector16 sums16(const float* lines) {
    alignas(64) float x[PANEL * PANEL];
    simd::transpose16(lines, PANEL, x, PANEL);
    Vector16 a[8];
    for (std::size_t i = 0; i < 8; ++i) a[i] = load16(x + i * PANEL) + load16(x + (i + 8) * PANEL);
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

// Calls f.template operator()<R>() for the given R, which is at most `Most`.
template <std::size_t Most, class F>
inline void with_rows(std::size_t rows, F f) {
    if constexpr (Most == 1) {
        f.template operator()<1>();
    } else {
        if (rows >= Most) return f.template operator()<Most>();
        with_rows<Most - 1>(rows, f);
    }
}

// Calls put(i, Σ over lanes and panels) for i < n. add(i, p, sum) adds the line of i in panel p to the sum. Several i
// are processed at a time, because a single chain would wait for each addition.
template <class Add, class Put>
inline void sum_panels(std::size_t n, std::size_t panels, Add add, Put put) {
    constexpr std::size_t MOST = simd::LANES == 16 ? 8 : simd::LANES == 8 ? 4 : 2;
    for (std::size_t first = 0; first < n; first += PANEL) {
        alignas(64) float lines[PANEL * PANEL] = {}, found[PANEL];
        const std::size_t count = n - first < PANEL ? n - first : PANEL;
        for (std::size_t i = 0; i < count; i += MOST) {
            with_rows<MOST>(count - i, [&]<std::size_t R>() {
                Vector16 sums[R];
                UNROLL for (Vector16& sum : sums) sum = splat16(0.0f);
                for (std::size_t p = 0; p < panels; ++p) {
                    UNROLL for (std::size_t r = 0; r < R; ++r) sums[r] = add(first + i + r, p, sums[r]);
                }
                UNROLL for (std::size_t r = 0; r < R; ++r) store16(lines + (i + r) * PANEL, sums[r]);
            });
        }
        store16(found, sums16(lines));
        for (std::size_t i = 0; i < count; ++i) put(first + i, found[i]);
    }
}

}  // namespace
