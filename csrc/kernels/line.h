// A line: one number of each of the sixteen rows of a panel, in registers. For sums that run down a panel; loops over
// single numbers are left to the compiler.
#pragma once

namespace {

struct Line {
    simd::Vector v[LANE / simd::LANES];
};

inline Line spread(float a) {
    Line x;
    UNROLL for (simd::Vector& v : x.v) v = simd::splat(a);
    return x;
}

inline Line load_line(const float* p) {
    Line x;
    UNROLL for (std::size_t i = 0; i < LANE / simd::LANES; ++i) x.v[i] = simd::load(p + i * simd::LANES);
    return x;
}

inline void store_line(float* p, const Line& x) {
    UNROLL for (std::size_t i = 0; i < LANE / simd::LANES; ++i) simd::store(p + i * simd::LANES, x.v[i]);
}

inline Line operator+(Line a, const Line& b) {
    UNROLL for (std::size_t i = 0; i < LANE / simd::LANES; ++i) a.v[i] = simd::add(a.v[i], b.v[i]);
    return a;
}

inline Line operator-(Line a, const Line& b) {
    UNROLL for (std::size_t i = 0; i < LANE / simd::LANES; ++i) a.v[i] = simd::subtract(a.v[i], b.v[i]);
    return a;
}

inline Line operator*(Line a, const Line& b) {
    UNROLL for (std::size_t i = 0; i < LANE / simd::LANES; ++i) a.v[i] = simd::multiply(a.v[i], b.v[i]);
    return a;
}

// a b + c, as fma of maths.h.
inline Line fma(Line a, const Line& b, const Line& c) {
    UNROLL for (std::size_t i = 0; i < LANE / simd::LANES; ++i) a.v[i] = simd::multiply_add(a.v[i], b.v[i], c.v[i]);
    return a;
}

// The sum of a line, halves upon halves: the same order for every instruction set.
inline float lane_sum(const Line& line) {
    alignas(64) float x[LANE], a[8];
    store_line(x, line);
    for (std::size_t i = 0; i < 8; ++i) a[i] = x[i] + x[i + 8];
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

}  // namespace
