// The losses: their list, and for each the loss of a row and its derivative with respect to the outputs, as plain code
// and as vector code. The formulas are those of src/multilayer/nn/losses.py.
#ifndef MULTILAYER_LOSS_FORMULAS
#define MULTILAYER_LOSS_FORMULAS

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formulas/activations.h"

namespace multilayer {

#define MULTILAYER_LOSSES(X) \
    X(cross_entropy) X(binary_cross_entropy) X(mse) X(mae) X(huber) X(quantile) X(poisson) X(perceptron)
MULTILAYER_ENUM(LossKind, MULTILAYER_LOSSES)

struct Loss {
    LossKind kind = LossKind::mse;
    double constant = 0.0;          // label smoothing, or the delta of huber
    std::vector<double> quantiles;  // each target has one output per quantile
};

}  // namespace multilayer

namespace multilayer::reference {

// The target of a row: a class number if `label` is set, otherwise the values y.
template <class T>
struct Target {
    const std::int64_t* label;
    const T* y;
};

// −Σ_c t_c log softmax(z)_c and dz = softmax(z) − t, where t are the smoothed probabilities of the target.
template <class T>
T cross_entropy(const Loss& loss, std::size_t C, const T* z, Target<T> target, T* dz) {
    const T share = T(1 - loss.constant), rest = T(loss.constant / static_cast<double>(C));
    T top = z[0], sum = 0, total = 0;
    for (std::size_t c = 1; c < C; ++c) top = z[c] > top ? z[c] : top;
    for (std::size_t c = 0; c < C; ++c) sum += std::exp(z[c] - top);
    const T log_sum = std::log(sum);
    for (std::size_t c = 0; c < C; ++c) {
        const T y = target.label ? T(static_cast<std::size_t>(*target.label) == c) : target.y[c];
        const T t = share * y + rest, log_p = z[c] - top - log_sum;
        total += log_p * t;
        dz[c] = std::exp(log_p) - t;
    }
    return -total;
}

// The loss of one output, for losses that are a mean over outputs. Its slope is written to d. Only quantile uses q.
template <class T>
T one_output(const Loss& loss, T z, T y, T q, T& d) {
    const T e = z - y, constant = T(loss.constant);
    switch (loss.kind) {
        case LossKind::binary_cross_entropy: {
            const T t = T(1 - loss.constant) * y + T(loss.constant / 2);
            d = logistic(z) - t;
            return softplus(z) - t * z;
        }
        case LossKind::mse: d = 2 * e; return e * e;
        case LossKind::mae: d = e > 0 ? T(1) : e < 0 ? T(-1) : e; return std::abs(e);
        case LossKind::huber:
            d = e < -constant ? -constant : e > constant ? constant : e;
            return std::abs(e) <= constant ? T(0.5) * (e * e) : constant * (std::abs(e) - T(0.5) * constant);
        case LossKind::quantile:  // at e = 0 the mean of both slopes, as in torch
            d = (e > 0 ? T(1) : e < 0 ? T(0) : T(0.5)) - q;
            return e > 0 ? (q - 1) * -e : q * -e;
        case LossKind::poisson: d = std::exp(z) - y; return std::exp(z) - y * z;
        case LossKind::perceptron: {
            const T t = 2 * y - 1, v = -t * z;
            d = t * z <= 0 ? -t : T(0);
            return v <= 0 ? T(0) : v;
        }
        case LossKind::cross_entropy: break;
    }
    return std::numeric_limits<T>::quiet_NaN();
}

// Returns the loss of a row of outputs z (C), and writes its derivative dz (C).
template <class T>
T row_loss(const Loss& loss, std::size_t C, const T* z, Target<T> target, T* dz) {
    if (loss.kind == LossKind::cross_entropy) return cross_entropy(loss, C, z, target, dz);
    const std::size_t Q = loss.kind == LossKind::quantile ? loss.quantiles.size() : 1;
    T total = 0;
    for (std::size_t c = 0; c < C; ++c) {
        const T q = loss.kind == LossKind::quantile ? T(loss.quantiles[c % Q]) : T(0);
        total += one_output(loss, z[c], target.y[c / Q], q, dz[c]);
        dz[c] /= T(C);
    }
    return total / T(C);
}

}  // namespace multilayer::reference

#endif

// Vector code. kernels/kernels.cpp includes this part once per instruction set, after the functions of kernels/maths.h.
#ifdef MULTILAYER_VECTOR

namespace {

struct Slope {
    float loss, slope;
};

// Calls each(f) for losses that are a mean over outputs. f(z, y, c) returns the loss of output c and its slope.
template <class F>
inline void with_output_loss(const LossTable& w, F each) {
    const auto c = static_cast<float>(w.loss->constant);
    switch (w.loss->kind) {
        case LossKind::cross_entropy: break;  // needs all outputs: kernels/losses.h
        case LossKind::binary_cross_entropy:
            each([c](float x, float y, std::size_t) {
                const float t = fma(1.0f - c, y, 0.5f * c);
                return Slope{softplus_of(x) - t * x, logistic(x) - t};
            });
            break;
        case LossKind::mse:
            each([](float x, float y, std::size_t) { return Slope{(x - y) * (x - y), 2.0f * (x - y)}; });
            break;
        case LossKind::mae:
            each([](float x, float y, std::size_t) {
                const float e = x - y;
                return Slope{magnitude(e), e > 0.0f ? 1.0f : e < 0.0f ? -1.0f : e};  // NaN stays NaN
            });
            break;
        case LossKind::huber:
            each([c](float x, float y, std::size_t) {
                const float e = x - y, m = magnitude(e);
                return Slope{m <= c ? 0.5f * e * e : c * (m - 0.5f * c), e > c ? c : e < -c ? -c : e};
            });
            break;
        case LossKind::quantile: {
            const std::size_t Q = w.d / w.targets;
            each([&w, Q](float x, float y, std::size_t i) {
                const float q = w.quantiles[i % Q], e = y - x;
                const float below = e < 0.0f ? 1.0f : e == 0.0f ? 0.5f : e > 0.0f ? 0.0f : e;
                return Slope{larger((q - 1.0f) * e, q * e), below - q};
            });
            break;
        }
        case LossKind::poisson:
            each([](float x, float y, std::size_t) {
                const float e = exponential(x);
                return Slope{e - y * x, e - y};
            });
            break;
        case LossKind::perceptron:
            each([](float x, float y, std::size_t) {
                const float t = 2.0f * y - 1.0f, m = t * x;
                return Slope{m < 0.0f ? -m : 0.0f * m, m <= 0.0f ? -t : 0.0f};
            });
            break;
    }
}

}  // namespace

#endif
