// Unit-wise operations y = f(x; w, b), where each unit has a weight and a bias: their list, and the formulas of each as
// plain code and as vector code.
//
// f is linear in w and b. The gradient of w is Σ g ⊙ x and that of b is Σ g. The cores compute these sums.
#ifndef MULTILAYER_UNITWISE_FORMULAS
#define MULTILAYER_UNITWISE_FORMULAS

#define MULTILAYER_UNITWISE(X) X(scale)

namespace multilayer::reference {

// NAME(x, w, b) returns y, and NAME_slope(g, w) returns dx for g = dL/dy. A weight or bias that the layer does not have
// is 0.
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

// Returns y. `weight` and `bias` are functions that return the value of the unit, so only those that a formula uses
// must exist.
template <Kind kind>
inline auto unit_value(auto x, auto weight, [[maybe_unused]] auto bias) {
    if constexpr (kind == Kind::scale) return x * weight();
}

// Returns dx for g = dL/dy.
template <Kind kind>
inline auto unit_slope(auto g, [[maybe_unused]] auto weight) {
    if constexpr (kind == Kind::scale) return g * weight();
}

}  // namespace

#endif
