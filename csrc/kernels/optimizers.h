// One step of the optimiser over n numbers, in the order of operations of optim.py: L2 after clipping, decay before the
// step, the average last. Roots are exact; the compiler makes the loops vector code.
//
// Registers: it streams. Gradient, parameter and up to three numbers kept with it, a few of Newton's, and the constants of the
// rule, one a register: 1 of SGD, 6 of Adam, 13 with clipping, decay and an average, some of them read from memory beside 16.
#pragma once

namespace {

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

inline bool has_extras(const Update& u) {
    return u.scale != 1.0f || u.clip < __builtin_inff() || u.l2 != 0.0f || u.shrink != 1.0f;
}

template <OptimizerKind kind>
inline void update_kind(const Update& u, std::size_t n, const float* g, ParameterArrays to) {
    const bool extras = has_extras(u);
    const bool averaged = u.average >= 0.0f;
    if (extras) {
        if (averaged) return update_as<kind, true, true>(u, n, g, to.value, to.slot0, to.slot1, to.average);
        return update_as<kind, true, false>(u, n, g, to.value, to.slot0, to.slot1, to.average);
    }
    if (averaged) return update_as<kind, false, true>(u, n, g, to.value, to.slot0, to.slot1, to.average);
    return update_as<kind, false, false>(u, n, g, to.value, to.slot0, to.slot1, to.average);
}

void update(const Update& u, std::size_t n, const float* g, ParameterArrays to) {
    switch (u.kind) {
        case OptimizerKind::sgd: return update_kind<OptimizerKind::sgd>(u, n, g, to);
        case OptimizerKind::momentum: return update_kind<OptimizerKind::momentum>(u, n, g, to);
        case OptimizerKind::nesterov: return update_kind<OptimizerKind::nesterov>(u, n, g, to);
        case OptimizerKind::adam: return update_kind<OptimizerKind::adam>(u, n, g, to);
    }
}

}  // namespace
