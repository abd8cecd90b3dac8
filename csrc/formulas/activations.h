// The activations: their list, and for each f(z), f′(z) and ∂f/∂c for a learned c, as plain code and as vector code.
//
// The formulas are those of src/multilayer/nn/activations. They are accurate in both tails: exponentials are computed
// for −|z|, and Φ with erfc. NaN gives NaN. Where f′ is discontinuous, it has the value of PyTorch.
#ifndef MULTILAYER_ACTIVATION_FORMULAS
#define MULTILAYER_ACTIVATION_FORMULAS

#include <cmath>
#include <limits>
#include <numbers>

#include "formulas/enums.h"

namespace multilayer {

// Activations, named as in the catalogue. `constant` is the single constant of some of them: the power p of polynomial,
// the slope a of sigmoid, alpha of leaky_relu and elu, beta of swish. prelu learns alpha, and learned_swish learns
// beta.
#define MULTILAYER_FUNCTIONS(X)                                                                                \
    X(identity) X(step) X(polynomial) X(sqrt) X(sigmoid) X(tanh) X(hard_tanh) X(sin) X(relu) X(leaky_relu)      \
    X(prelu) X(elu) X(selu) X(softplus) X(gelu) X(gelu_tanh) X(silu) X(swish) X(learned_swish) X(mish)
MULTILAYER_ENUM(Function, MULTILAYER_FUNCTIONS)

}  // namespace multilayer

namespace multilayer::reference {

// σ(z) = 1 / (1 + e⁻ᶻ).
template <class T>
T logistic(T z) {
    const T e = std::exp(-std::abs(z));
    return z >= 0 ? 1 / (1 + e) : e / (1 + e);
}

// σ′(z) = σ(z) σ(−z).
template <class T>
T logistic_slope(T z) {
    const T e = std::exp(-std::abs(z));
    return e / ((1 + e) * (1 + e));
}

// log(1 + eᶻ).
template <class T>
T softplus(T z) {
    return (z <= 0 ? T(0) : z) + std::log1p(std::exp(-std::abs(z)));
}

// z · gate, and 0 if the gate is 0, also for an infinite z: every gate here decreases faster than z grows.
template <class T>
T gated(T z, T gate) {
    return gate == 0 ? T(0) : z * gate;
}

template <class T>
T normal_cdf(T z) {
    return std::erfc(-z / std::numbers::sqrt2_v<T>) / 2;
}

template <class T>
T normal_pdf(T z) {
    return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi_v<T>);
}

// zᵖ for an integer p ≥ 0.
template <class T>
T power(T z, T p) {
    T product = 1;
    for (T i = 0; i < p; ++i) product *= z;
    return product;
}

// The constants for which a layer of independent units keeps mean 0 and variance 1 (Klambauer et al. 2017).
constexpr double SELU_SCALE = 1.0507009873554804934193349852946;
constexpr double SELU_ALPHA = 1.6732632423543772848170429916717;

// The tanh approximation of GELU is z σ(u), u = 2 √(2/π) (z + 0.044715 z³).
constexpr double GELU_OUTER = 1.5957691216057307117597842397375;
constexpr double GELU_INNER = 0.044715;

// f(z), where c is the constant or the learned parameter of the function.
template <class T>
T value(Function f, T z, T c) {
    switch (f) {
        case Function::identity: return z;
        case Function::step: return z >= 0 ? T(1) : z < 0 ? T(0) : z;
        case Function::polynomial: return power(z, c);
        case Function::sqrt: return std::sqrt(z);
        case Function::sigmoid: return logistic(c * z);
        case Function::tanh: return std::tanh(z);
        case Function::hard_tanh: return z < -1 ? T(-1) : z > 1 ? T(1) : z;
        case Function::sin: return std::sin(z);
        case Function::relu: return z <= 0 ? T(0) : z;
        case Function::leaky_relu:
        case Function::prelu: return z > 0 ? z : c * z;
        case Function::elu: return z > 0 ? z : c * std::expm1(z);
        case Function::selu: return T(SELU_SCALE) * (z > 0 ? z : T(SELU_ALPHA) * std::expm1(z));
        case Function::softplus: return softplus(z);
        case Function::gelu: return gated(z, normal_cdf(z));
        case Function::gelu_tanh: return gated(z, logistic(T(GELU_OUTER) * (z + T(GELU_INNER) * (z * z * z))));
        case Function::silu: return gated(z, logistic(z));
        case Function::swish:
        case Function::learned_swish: return gated(z, logistic(c * z));
        case Function::mish: return gated(z, std::tanh(softplus(z)));
    }
    return std::numeric_limits<T>::quiet_NaN();
}

// f′(z).
template <class T>
T slope(Function f, T z, T c) {
    switch (f) {
        case Function::identity: return 1;
        case Function::step: return 0;
        case Function::polynomial: return c * power(z, c - 1);
        case Function::sqrt: return T(0.5) / std::sqrt(z);
        case Function::sigmoid: return c * logistic_slope(c * z);
        case Function::tanh: return 4 * logistic_slope(2 * z);
        case Function::hard_tanh: return std::abs(z) < 1 ? T(1) : T(0);
        case Function::sin: return std::cos(z);
        case Function::relu: return z > 0 ? T(1) : T(0);
        case Function::leaky_relu:
        case Function::prelu: return z > 0 ? T(1) : c;
        case Function::elu: return z > 0 ? T(1) : c * std::exp(z);
        case Function::selu: return T(SELU_SCALE) * (z > 0 ? T(1) : T(SELU_ALPHA) * std::exp(z));
        case Function::softplus: return logistic(z);
        case Function::gelu: return normal_cdf(z) + gated(z, normal_pdf(z));
        case Function::gelu_tanh: {
            const T cube = T(GELU_INNER) * (z * z * z);
            const T u = T(GELU_OUTER) * (z + cube);
            return logistic(u) + gated(T(GELU_OUTER) * (z + 3 * cube), logistic_slope(u));
        }
        case Function::silu: return logistic(z) + gated(z, logistic_slope(z));
        case Function::swish:
        case Function::learned_swish: return logistic(c * z) + gated(c * z, logistic_slope(c * z));
        case Function::mish: {
            const T s = softplus(z);
            return std::tanh(s) + gated(z, 4 * logistic_slope(2 * s) * logistic(z));
        }
    }
    return std::numeric_limits<T>::quiet_NaN();
}

// ∂f/∂c for functions with a learned c.
template <class T>
T slope_by_learned(Function f, T z, T c) {
    if (f == Function::prelu) return z > 0 ? T(0) : z;
    return gated(z * z, logistic_slope(c * z));
}

}  // namespace multilayer::reference

#endif

// Vector code. kernels/kernels.cpp includes this part once per instruction set, after the functions of kernels/maths.h.
#ifdef MULTILAYER_VECTOR

namespace {

struct Value {
    float f, slope;
};

// a = f(z) and f′(z). polynomial and sin are computed for a whole line by values_of.
template <Function function>
inline Value value_of(float z, float c) {
    if constexpr (function == Function::identity) {
        return {z, 1.0f};
    } else if constexpr (function == Function::step) {
        return {z >= 0.0f ? 1.0f : z < 0.0f ? 0.0f : z, 0.0f};
    } else if constexpr (function == Function::sqrt) {
        const float a = __builtin_sqrtf(z);
        return {a, 0.5f / a};
    } else if constexpr (function == Function::sigmoid) {
        const float a = logistic(c * z);
        return {a, c * a * (1.0f - a)};
    } else if constexpr (function == Function::tanh) {
        const float a = hyperbolic_tangent(z);
        return {a, fma(-a, a, 1.0f)};
    } else if constexpr (function == Function::hard_tanh) {
        return {z > 1.0f ? 1.0f : z < -1.0f ? -1.0f : z, z > -1.0f && z < 1.0f ? 1.0f : 0.0f};
    } else if constexpr (function == Function::relu) {
        return {z < 0.0f ? 0.0f : z, z > 0.0f ? 1.0f : 0.0f};  // NaN stays NaN
    } else if constexpr (function == Function::leaky_relu || function == Function::prelu) {
        return {z > 0.0f ? z : c * z, z > 0.0f ? 1.0f : c};
    } else if constexpr (function == Function::elu) {
        const float e = c * exponential_minus_one_below(z);
        return {z > 0.0f ? z : e, z > 0.0f ? 1.0f : e + c};
    } else if constexpr (function == Function::selu) {
        constexpr float ALPHA = 1.6732632423543772f, SCALE = 1.0507009873554805f;
        const float e = SCALE * ALPHA * exponential_minus_one_below(z);
        return {z > 0.0f ? SCALE * z : e, z > 0.0f ? SCALE : e + SCALE * ALPHA};
    } else if constexpr (function == Function::softplus) {
        return {softplus_of(z), logistic(z)};
    } else if constexpr (function == Function::gelu) {
        const Normal at = normal_of(z);
        return {gated(z, at.below), gated(z, at.density) + at.below};
    } else if constexpr (function == Function::gelu_tanh) {
        constexpr float C = 0.7978845608f, D = 0.044715f;
        const float z2 = z * z;
        const float t = hyperbolic_tangent(C * z * fma(D, z2, 1.0f));
        const float half = 0.5f * (1.0f + t);
        const float rises = 0.5f * fma(-t, t, 1.0f);
        return {gated(z, half), gated(z * C * fma(3.0f * D, z2, 1.0f), rises) + half};
    } else if constexpr (function == Function::mish) {
        const float e = exponential_below(20.0f < z ? 20.0f : z);
        const float n = e * (e + 2.0f);
        const float t = n / (n + 2.0f);
        const float s = e / (1.0f + e);
        return {gated(z, t), gated(z, s * fma(-t, t, 1.0f)) + t};
    } else {  // silu, swish, learned_swish: z σ(βz)
        const float s = logistic(c * z);
        return {gated(z, s), gated(c * z, s * (1.0f - s)) + s};
    }
}

// zᵖ and its derivative.
inline Value power_of(float z, int p) {
    float below = 1.0f;
    for (int i = 1; i < p; ++i) below *= z;
    return {below * z, static_cast<float>(p) * below};
}

// f and f′ of n values. `f` and `slope` must not overlap z.
template <Function function>
[[gnu::always_inline]] inline void values_of(const float* z, std::size_t n, float c, float* f, float* slope) {
    if constexpr (function == Function::sin) {
        circles(z, n, f, slope);
    } else {
        static_assert(function == Function::polynomial);
        for (std::size_t i = 0; i < n; ++i) {
            const Value v = power_of(z[i], static_cast<int>(c));
            f[i] = v.f, slope[i] = v.slope;
        }
    }
}

// ∂f/∂c for functions with a learned c.
template <Function function>
inline float learned_slope(float z, float c) {
    if constexpr (function == Function::prelu) return z > 0.0f ? 0.0f : z;
    if constexpr (function == Function::learned_swish) {
        const float s = logistic(c * z);
        return gated(z * z, s * (1.0f - s));
    }
    return 0.0f;
}

}  // namespace

#endif
