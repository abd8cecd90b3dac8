// The optimizers: their list, and the formulas of each as plain code and as vector code. The formulas are those of
// src/multilayer/nn/optimizers.py.
//
// Clipping, L2 and weight decay come before the formula, and the running average after it. They are the same for all
// optimizers.
#ifndef MULTILAYER_OPTIMIZER_FORMULAS
#define MULTILAYER_OPTIMIZER_FORMULAS

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "formulas/enums.h"

namespace multilayer {

#define MULTILAYER_OPTIMIZERS(X) X(sgd) X(momentum) X(nesterov) X(adam)  // adamw is adam with decay
MULTILAYER_ENUM(OptimizerKind, MULTILAYER_OPTIMIZERS)

// The number of slots per parameter: none, the velocity, or the mean and the mean square.
constexpr std::size_t slots_of(OptimizerKind kind) {
    return kind == OptimizerKind::sgd ? 0 : kind == OptimizerKind::adam ? 2 : 1;
}

struct Optimizer {
    OptimizerKind kind = OptimizerKind::adam;
    double momentum = 0.0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    std::size_t slots() const { return slots_of(kind); }
};

// The constants of an optimizer at step t = 1, 2, …, as used by vector code.
struct StepConstants {
    double rate;      // factor of the learning rate
    double momentum;  // μ, or β₁
    double eps;
};

inline StepConstants step_constants(const Optimizer& o, double t) {
    constexpr double LEAST_EPS = 1e-37;  // its inverse is finite in float
    if (o.kind != OptimizerKind::adam) return {1.0, o.momentum, std::max(o.eps, LEAST_EPS)};
    // η m̂ / (√v̂ + ε) is computed as (η √c₂ / c₁) m / (√v + ε √c₂) with c = 1 − βᵗ, which needs no product in the
    // denominator.
    const double root = std::sqrt(1.0 - std::pow(o.beta2, t));
    return {root / (1.0 - std::pow(o.beta1, t)), o.beta1, std::max(o.eps * root, LEAST_EPS)};
}

}  // namespace multilayer

namespace multilayer::reference {

// Makes step t for n values p with gradients g and learning rate `rate`. Slots that the optimizer does not use are
// null.
template <class T>
void descend(const Optimizer& o, double rate, double t, std::size_t n, const T* g, T* p, T* slot0, T* slot1) {
    switch (o.kind) {
        case OptimizerKind::sgd:
            for (std::size_t i = 0; i < n; ++i) p[i] -= T(rate) * g[i];
            break;
        case OptimizerKind::momentum:
        case OptimizerKind::nesterov: {
            const T mu = T(o.momentum);
            T* v = slot0;
            for (std::size_t i = 0; i < n; ++i) {
                v[i] = mu * v[i] + g[i];
                p[i] -= T(rate) * (o.kind == OptimizerKind::nesterov ? g[i] + mu * v[i] : v[i]);
            }
            break;
        }
        case OptimizerKind::adam: {
            const T step_rate = T(rate / (1 - std::pow(o.beta1, t))), spread = T(std::sqrt(1 - std::pow(o.beta2, t)));
            const T beta1 = T(o.beta1), rest1 = T(1 - o.beta1), beta2 = T(o.beta2), rest2 = T(1 - o.beta2);
            T *m = slot0, *v = slot1;
            for (std::size_t i = 0; i < n; ++i) {
                m[i] = beta1 * m[i] + rest1 * g[i];
                v[i] = beta2 * v[i] + rest2 * g[i] * g[i];
                p[i] -= step_rate * m[i] / (std::sqrt(v[i]) / spread + T(o.eps));
            }
            break;
        }
    }
}

}  // namespace multilayer::reference

#endif

// Vector code. kernels/kernels.cpp includes this part once per instruction set, after the functions of kernels/maths.h.
#ifdef MULTILAYER_VECTOR

namespace {

// Updates n values. The order of operations is that of the reference core: clipping, L2, decay, step, average. Square
// roots are correctly rounded. The compiler vectorizes the loop.
//
// Registers: gradient, parameter, up to three arrays of state, some temporaries of Newton's method, and one register
// per constant of the rule: 1 for SGD, 6 for Adam, 13 with clipping, decay and average. With 16 registers, some
// constants are read from memory.
template <OptimizerKind kind, bool extras, bool averaged>
[[gnu::always_inline]] inline void update_as(const Update& u, std::size_t n, const float* __restrict g, float* __restrict value,
                      float* __restrict slot0, float* __restrict slot1, float* __restrict average) {
    for (std::size_t i = 0; i < n; ++i) {
        float p = value[i], d = g[i];
        if constexpr (extras) {
            d *= u.scale;
            d = smaller(larger(d, -u.clip), u.clip);
            d = fma(u.l2, p, d);
            p *= u.shrink;
        }
        if constexpr (kind == OptimizerKind::sgd) {
            p = fma(-u.rate, d, p);
        } else if constexpr (kind == OptimizerKind::momentum) {
            const float v = slot0[i] = fma(u.momentum, slot0[i], d);
            p = fma(-u.rate, v, p);
        } else if constexpr (kind == OptimizerKind::nesterov) {
            const float v = slot0[i] = fma(u.momentum, slot0[i], d);
            p = fma(-u.rate, fma(u.momentum, v, d), p);
        } else {
            const float m = slot0[i] = fma(u.momentum, slot0[i], u.rest1 * d);
            const float v = slot1[i] = fma(u.beta2, slot1[i], u.rest2 * d * d);
            p = fma(-u.rate * m, inverse(__builtin_sqrtf(v) + u.eps), p);
        }
        value[i] = p;
        if constexpr (averaged) average[i] = fma(u.average, average[i], u.rest_average * p);
    }
}

}  // namespace

#endif
