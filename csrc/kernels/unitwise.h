// Unit-wise operations (formulas/unitwise.h) on panels, and on rows for prediction.
//
// Registers: the loops stream, with one loaded line, and a weight or a bias.
#pragma once

namespace {

// Calls f.template operator()<kind>() for the given kind.
template <class F>
inline void with_unitwise(Kind kind, F f) {
    switch (kind) {
#define CASE(name) \
    case Kind::name: return f.template operator()<Kind::name>();
        MULTILAYER_UNITWISE(CASE)
#undef CASE
        default: return;
    }
}

// Computes to = f(from, weight, bias) for each line of the region.
template <class F>
[[gnu::always_inline]] inline void each_unit(const Unitwise& w, const float* from, float* to, Region part, F f) {
    for (std::size_t p = part.p0; p < part.p1; ++p) {
        for (std::size_t u = part.u0; u < part.u1; ++u) {
            const std::size_t at = (p * w.d + u) * PANEL;
            store16(to + at, f(load16(from + at), [&] { return splat16(w.weight[u]); }, [&] { return splat16(w.bias[u]); }));
        }
    }
}

[[gnu::flatten]] void unitwise(const Unitwise& w, const float* x, float* y, Region part) {
    with_unitwise(w.kind, [&]<Kind kind>() {
        each_unit(w, x, y, part, [](auto z, auto weight, auto bias) { return unit_value<kind>(z, weight, bias); });
    });
}

[[gnu::flatten]] void unitwise_backward(const Unitwise& w, const float* g, float* dx, Region part) {
    with_unitwise(w.kind, [&]<Kind kind>() {
        each_unit(w, g, dx, part, [](auto z, auto weight, auto) { return unit_slope<kind>(z, weight); });
    });
}

// For prediction, in place.
[[gnu::flatten]] void unitwise_rows(const Unitwise& w, float* x, std::size_t stride, std::size_t n) {
    with_unitwise(w.kind, [&]<Kind kind>() {
        for (std::size_t b = 0; b < n; ++b) {
            float* __restrict to = x + b * stride;
            const float *__restrict weight = w.weight, *__restrict bias = w.bias;
            for (std::size_t u = 0; u < w.d; ++u) {
                to[u] = unit_value<kind>(to[u], [=] { return weight[u]; }, [=] { return bias[u]; });
            }
        }
    });
}

}  // namespace
