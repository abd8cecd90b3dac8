// Operations on each unit by itself, y = f(x; w, b) with a weight and a bias of the unit: their list, and the formulas of each
// in plain code and as vector code.
//
// f is linear in w and b: the gradient of w is Σ g ⊙ x and that of b is Σ g, which the cores sum.
#ifndef MULTILAYER_UNITWISE_FORMULAS
#define MULTILAYER_UNITWISE_FORMULAS

#define MULTILAYER_UNITWISE(X) X(scale)

namespace multilayer::reference {

// NAME(x, w, b) gives y, and NAME_slope(g, w) gives dx of g = dL/dy. A weight or bias that the layer does not have is 0.
template <class T>
T scale(T x, T w, T) {
    return x * w;
}

template <class T>
T scale_slope(T g, T w) {
    return g * w;
}

}  // namespace multilayer::reference

#endif

// Vector code. kernels/kernels.cpp includes this part once per instruction set, after the functions of kernels/vector16.h.
#ifdef MULTILAYER_VECTOR

namespace {

// y of x. `weight` and `bias` are functions that give the unit's own, so that only what a formula reads has to exist.
template <Kind kind>
inline auto unit_value(auto x, auto weight, [[maybe_unused]] auto bias) {
    if constexpr (kind == Kind::scale) return x * weight();
}

// dx of g = dL/dy.
template <Kind kind>
inline auto unit_slope(auto g, [[maybe_unused]] auto weight) {
    if constexpr (kind == Kind::scale) return g * weight();
}

}  // namespace

#endif
