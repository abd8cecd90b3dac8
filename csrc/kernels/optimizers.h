// Selects the update of formulas/optimizers.h by the kind of optimizer, and by whether it clips or decays, and
// averages.
#pragma once

namespace {

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
#define CASE(name) \
    case OptimizerKind::name: return update_kind<OptimizerKind::name>(u, n, g, to);
        MULTILAYER_OPTIMIZERS(CASE)
#undef CASE
    }
}

}  // namespace
