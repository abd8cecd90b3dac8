// Functions of one float without branches, so that loops over them can be vectorized. The comment of each states its
// error against the exact value. All functions propagate NaN and are exact where they saturate.
//
// Registers: the argument, the rest after range reduction, the sum of a polynomial, the power of two, and a selection,
// which are five or six. Coefficients are read from memory if no registers are free.
#pragma once

namespace {

#if defined(__FMA__) || defined(__aarch64__)
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
inline float fma(float a, float b, float c) { return a * b + c; }
#endif

inline float bits_to_float(std::int32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

// z · gate, and 0 if the gate is 0, also for an infinite z: every gate decreases faster than z grows.
inline float gated(float z, float gate) { return gate == 0.0f ? 0.0f : z * gate; }

inline float larger(float a, float b) { return a > b ? a : b; }
inline float smaller(float a, float b) { return a < b ? a : b; }
inline float magnitude(float x) { return __builtin_fabsf(x); }

// 1.5 · 2²³: adding it rounds to an integer, which is then in the low bits.
constexpr float ROUNDER = 12582912.0f;
constexpr std::int32_t ROUNDER_BITS = 0x4B400000;

// 1/x to 2 ulp for x from 10⁻³⁷ to 10³⁷, with three Newton steps from an initial value based on the bits. In loops with
// products this is faster than a division, because the divider processes one vector at a time and also computes the
// square roots.
[[gnu::always_inline]] inline float inverse(float x) {
    std::int32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    const float guess = bits_to_float(0x7EF311C7 - bits);
    const float once = fma(guess, fma(-x, guess, 1.0f), guess);
    const float twice = fma(once, fma(-x, once, 1.0f), once);
    return fma(twice, fma(-x, twice, 1.0f), twice);
}

struct Power {
    float q;      // exp(r) − 1
    float power;  // 2ⁿ
};

// exp(x) = 2ⁿ (1 + q) with x = n log 2 + r, |r| ≤ ½ log 2, for x from −87.3 to 88.3.
inline Power split_exp(float x) {
    const float shifted = fma(x, 1.44269504f, ROUNDER);
    const float n = shifted - ROUNDER;
    float r = fma(n, -0.693359375f, x);
    r = fma(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = fma(p, r, 1.3981999507e-3f);
    p = fma(p, r, 8.3334519073e-3f);
    p = fma(p, r, 4.1665795894e-2f);
    p = fma(p, r, 1.6666665459e-1f);
    p = fma(p, r, 5.0000001201e-1f);
    std::int32_t whole;
    __builtin_memcpy(&whole, &shifted, sizeof whole);
    return {fma(p, r * r, r), bits_to_float((whole - ROUNDER_BITS + 127) << 23)};
}

constexpr float EXP_LOW = -87.3f, EXP_HIGH = 88.3762f;

// exp(x) to 1 ulp. ∞ above 88.37, and 0 below −87.3.
inline float exponential(float x) {
    const float inside = smaller(larger(x, EXP_LOW), EXP_HIGH);
    const Power e = split_exp(inside);
    const float y = fma(e.power, e.q, e.power);
    const float bounded = x > EXP_HIGH ? __builtin_inff() : x < EXP_LOW ? 0.0f : y;
    return x == x ? bounded : x;
}

// exp(x) for x ≤ EXP_HIGH only. The comparisons here and below are written so that NaN propagates.
inline float exponential_below(float x) {
    const Power e = split_exp(EXP_LOW > x ? EXP_LOW : x);
    return x < EXP_LOW ? 0.0f : fma(e.power, e.q, e.power);
}

// exp(x) − 1 to 1 ulp for x ≤ 0, and 0 for x > 0.
inline float exponential_minus_one_below(float x) {
    const float most = 0.0f < x ? 0.0f : x;
    const Power e = split_exp(EXP_LOW > most ? EXP_LOW : most);
    return fma(e.power, e.q, e.power - 1.0f);
}

// σ(x) to 2 ulp.
inline float logistic(float x) { return 1.0f / (1.0f + exponential(-x)); }

// tanh(x) to 2 ulp.
inline float hyperbolic_tangent(float x) {
    const float t = exponential_minus_one_below(-2.0f * magnitude(x));  // in (−1, 0]
    const float y = -t / (t + 2.0f);
    return __builtin_copysignf(y, x);
}

// log(1 + t) to 2 ulp for t from 0 to 1, as 2 artanh(t / (2 + t)), whose argument is at most 1/3.
inline float log_one_plus(float t) {
    const float s = t / (2.0f + t);
    const float s2 = s * s;
    float p = 1.0f / 15.0f;
    p = fma(p, s2, 1.0f / 13.0f);
    p = fma(p, s2, 1.0f / 11.0f);
    p = fma(p, s2, 1.0f / 9.0f);
    p = fma(p, s2, 1.0f / 7.0f);
    p = fma(p, s2, 1.0f / 5.0f);
    p = fma(p, s2, 1.0f / 3.0f);
    return fma(2.0f * s * s2, p, 2.0f * s);
}

// log x to 3 ulp for x ≥ 1, with x = 2ⁿ (1 + t).
inline float logarithm(float x) {
    std::int32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    const auto n = static_cast<float>((bits >> 23) - 127);
    const float t = bits_to_float((bits & 0x007FFFFF) | 0x3F800000) - 1.0f;
    const float y = fma(n, 0.693359375f, fma(n, -2.12194440e-4f, log_one_plus(t)));
    return x <= 3.4e38f ? y : x;
}

// log(1 + exp x) to 3 ulp.
inline float softplus_of(float x) { return larger(x, 0.0f) + log_one_plus(exponential_below(-magnitude(x))); }

// Φ and φ of the normal distribution, with an absolute error of 2e-7.
//
// With x = |z|/√2, erfc(x) = exp(−x²) t P(t) and t = 1/(1 + 0.4 x). P has degree 10, and its error is at most 7e-9 of
// the value.
struct Normal {
    float below, density;
};

inline Normal normal_of(float z) {
    const float x = magnitude(z) * 0.70710678f;
    const float e = exponential_below(-0.5f * z * z);
    const float t = 1.0f / fma(0.4f, x, 1.0f);
    float p = -0.02950643189251423f;
    p = fma(p, t, 0.14192670583724976f);
    p = fma(p, t, -0.23873619735240936f);
    p = fma(p, t, 0.14143547415733337f);
    p = fma(p, t, -0.0497441440820694f);
    p = fma(p, t, 0.08522816002368927f);
    p = fma(p, t, 0.11863412708044052f);
    p = fma(p, t, 0.1718023419380188f);
    p = fma(p, t, 0.20760805904865265f);
    p = fma(p, t, 0.22567607462406158f);
    p = fma(p, t, 0.22567583620548248f);
    const float tail = 0.5f * e * (p * t);
    return {z > 0.0f ? 1.0f - tail : tail, e * 0.39894228f};
}

// Sine and cosine for |x| ≤ NEAR, with an absolute error of 1e-7, or 5e-7 if a multiply-add rounds twice.
struct Circle {
    float sine, cosine;
};

constexpr float NEAR = 1e5f;  // the spacing of floats is 8e-3 here

inline Circle circle_of(float x) {
    const float shifted = fma(x, 0.636619772f, ROUNDER);
    const float n = shifted - ROUNDER;
    // π/2 in three parts. The first two have few bits, so their products with n are exact.
    float r = fma(n, -1.5703125f, x);
    r = fma(n, -4.837512969970703125e-4f, r);
    r = fma(n, -7.549789948768648e-8f, r);
    const float r2 = r * r;
    float s = -1.9515295891e-4f;
    s = fma(s, r2, 8.3321608736e-3f);
    s = fma(s, r2, -1.6666654611e-1f);
    const float sine = fma(s * r2, r, r);
    float c = 2.443315711809948e-5f;
    c = fma(c, r2, -1.388731625493765e-3f);
    c = fma(c, r2, 4.166664568298827e-2f);
    const float cosine = fma(c, r2 * r2, fma(-0.5f, r2, 1.0f));
    std::int32_t whole;
    __builtin_memcpy(&whole, &shifted, sizeof whole);
    const std::int32_t quarter = whole - ROUNDER_BITS;
    const bool swapped = (quarter & 1) != 0;
    const float a = swapped ? cosine : sine, b = swapped ? sine : cosine;
    return {(quarter & 2) != 0 ? -a : a, ((quarter + 1) & 2) != 0 ? -b : b};
}

// Sine and cosine of n values of any size, with the same accuracy. NaN for ∞.
[[gnu::always_inline]] inline void circles(const float* __restrict x, std::size_t n, float* __restrict sine,
                                           float* __restrict cosine) {
    std::int32_t far = 0;
    for (std::size_t i = 0; i < n; ++i) {
        far |= magnitude(x[i]) <= NEAR ? 0 : 1;
        const Circle at = circle_of(x[i]);
        sine[i] = at.sine, cosine[i] = at.cosine;
    }
    if (far == 0) return;
    for (std::size_t i = 0; i < n; ++i) {  // rare: the library functions are accurate for any x
        if (!(magnitude(x[i]) <= NEAR)) sine[i] = __builtin_sinf(x[i]), cosine[i] = __builtin_cosf(x[i]);
    }
}

}  // namespace
