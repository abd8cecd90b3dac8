// The loss of each row and its slope by the outputs, in place of them. Formulas: losses.py. A row is a lane: softmax
// runs down the classes. Slopes are times the row's share of the weights, which is 0 where there is no row.
//
// Registers: they stream, class by class. Four lines run down with cross-entropy (top, Σ exp, Σ t z, Σ t), one with the others,
// and stay in registers or in the first cache as the compiler finds room beside what maths.h takes.
#pragma once

namespace {

void cross_entropy(const LossTable& w, float* z, float* rows, std::size_t p) {
    const std::size_t C = w.d;
    const float eps = static_cast<float>(w.loss->constant);
    float* panel = z + p * C * LANE;
    const float* share = w.share + p * LANE;
    alignas(64) float top[LANE], sum[LANE] = {}, dot[LANE] = {}, mass[LANE] = {};
    for (std::size_t l = 0; l < LANE; ++l) top[l] = panel[l];
    for (std::size_t c = 1; c < C; ++c) {
        for (std::size_t l = 0; l < LANE; ++l) top[l] = larger(panel[c * LANE + l], top[l]);
    }
    const float even = eps / static_cast<float>(C);
    const auto target = [&](std::size_t c, std::size_t l) {
        const std::size_t row = p * LANE + l;
        const float t = w.classes ? (w.classes[row] == static_cast<std::int64_t>(c) ? 1.0f : 0.0f)
                                  : w.y[row * w.targets + c];
        return fma(1.0f - eps, t, even);
    };
    // Σ t (z − top): where a target is 0 the product may not be (−∞ times 0).
    for (std::size_t c = 0; c < C; ++c) {
        for (std::size_t l = 0; l < LANE; ++l) {
            const float shifted = panel[c * LANE + l] - top[l], t = target(c, l);
            dot[l] += t == 0.0f ? 0.0f * top[l] : t * shifted;
            mass[l] += t;
            const float e = exponential(shifted);
            panel[c * LANE + l] = e;
            sum[l] += e;
        }
    }
    for (std::size_t l = 0; l < LANE; ++l) {
        rows[p * LANE + l] = fma(mass[l], static_cast<float>(__builtin_log(static_cast<double>(sum[l]))), -dot[l]);
    }
    for (std::size_t c = 0; c < C; ++c) {
        for (std::size_t l = 0; l < LANE; ++l) {
            float& d = panel[c * LANE + l];
            d = (d / sum[l] - target(c, l)) * share[l];
        }
    }
}

struct Slope {
    float loss, slope;
};

template <class F>
void each_output(const LossTable& w, float* z, float* rows, std::size_t p, F f) {
    const float C = static_cast<float>(w.d);
    const std::size_t per_target = w.d / w.targets;
    const float* share = w.share + p * LANE;
    alignas(64) float sums[LANE] = {};
    for (std::size_t c = 0; c < w.d; ++c) {
        float* line = z + (p * w.d + c) * LANE;
        for (std::size_t l = 0; l < LANE; ++l) {
            const Slope s = f(line[l], w.y[(p * LANE + l) * w.targets + c / per_target], c);
            sums[l] += s.loss;
            line[l] = s.slope / C * share[l];
        }
    }
    for (std::size_t l = 0; l < LANE; ++l) rows[p * LANE + l] = sums[l] / C;
}

void loss(const LossTable& w, float* z, float* rows, std::size_t p0, std::size_t p1) {
    const auto c = static_cast<float>(w.loss->constant);
    for (std::size_t p = p0; p < p1; ++p) {
        const auto each = [&](auto f) { each_output(w, z, rows, p, f); };
        switch (w.loss->kind) {
            case LossKind::cross_entropy: cross_entropy(w, z, rows, p); break;
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
                    return Slope{magnitude(e), e > 0.0f ? 1.0f : e < 0.0f ? -1.0f : e};  // NaN goes on
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
}

}  // namespace
