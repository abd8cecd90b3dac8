// Computes the loss of each row, and replaces the outputs by its slope. Formulas: formulas/losses.h. Each lane is a
// row, so softmax loops over the classes. Slopes are multiplied by the share of the row in the weights, which is 0 for
// padding.
//
// Registers: the loops stream over the classes. cross_entropy has four lines of sums (top, Σ exp, Σ t z, Σ t), the
// other losses have one. They stay in registers or in the first-level cache, next to the registers of maths.h. Sums
// over many classes are sums of partial sums of TERMS terms. The rounding error then grows with the square root,
// whereas a single sum of thousands of equal terms would round all of them the same way.
#pragma once

namespace {

// The targets of the rows of a panel, class by class. The kind of target is chosen before the loops, so that they can
// be vectorized.
struct Targets {
    Targets(const LossTable& w, std::size_t p)
    : w_(w), first_(p * PANEL), rest_(1.0f - static_cast<float>(w.loss->constant)),
      even_(static_cast<float>(w.loss->constant) / static_cast<float>(w.d)) {
        for (std::size_t l = 0; w.classes && l < PANEL; ++l) classes_[l] = static_cast<std::int32_t>(w.classes[first_ + l]);
    }

    // (1 − ε) t + ε/C of class c.
    void of(std::size_t c, float* __restrict t) const {
        if (w_.classes) {
            for (std::size_t l = 0; l < PANEL; ++l) t[l] = classes_[l] == static_cast<std::int32_t>(c) ? 1.0f : 0.0f;
        } else {
            for (std::size_t l = 0; l < PANEL; ++l) t[l] = w_.y[(first_ + l) * w_.targets + c];
        }
        for (std::size_t l = 0; l < PANEL; ++l) t[l] = fma(rest_, t[l], even_);
    }

private:
    const LossTable& w_;
    std::size_t first_;
    float rest_, even_;
    alignas(64) std::int32_t classes_[PANEL];
};

constexpr std::size_t TERMS = 64;

[[gnu::flatten]] void cross_entropy(const LossTable& w, float* z, float* rows, std::size_t p) {
    const std::size_t C = w.d;
    float* panel = z + p * C * PANEL;
    const float* __restrict share = w.share + p * PANEL;
    const Targets targets(w, p);
    alignas(64) float t[PANEL], top[PANEL], sum[PANEL] = {}, dot[PANEL] = {}, mass[PANEL] = {};
    for (std::size_t l = 0; l < PANEL; ++l) top[l] = panel[l];
    for (std::size_t c = 1; c < C; ++c) {
        for (std::size_t l = 0; l < PANEL; ++l) top[l] = larger(panel[c * PANEL + l], top[l]);
    }
    // Σ t (z − top). If a target is 0, its product is skipped, because it could be −∞ times 0.
    for (std::size_t first = 0; first < C; first += TERMS) {
        alignas(64) float some[PANEL] = {}, some_dot[PANEL] = {}, some_mass[PANEL] = {};
        for (std::size_t c = first; c < C && c < first + TERMS; ++c) {
            targets.of(c, t);
            float* __restrict line = panel + c * PANEL;
            for (std::size_t l = 0; l < PANEL; ++l) {
                const float shifted = line[l] - top[l];
                some_dot[l] += t[l] == 0.0f ? 0.0f * top[l] : t[l] * shifted;
                some_mass[l] += t[l];
                line[l] = exponential_below(shifted);
                some[l] += line[l];
            }
        }
        for (std::size_t l = 0; l < PANEL; ++l) sum[l] += some[l], dot[l] += some_dot[l], mass[l] += some_mass[l];
    }
    for (std::size_t l = 0; l < PANEL; ++l) rows[p * PANEL + l] = fma(mass[l], logarithm(sum[l]), -dot[l]);
    for (std::size_t c = 0; c < C; ++c) {
        targets.of(c, t);
        float* __restrict line = panel + c * PANEL;
        // Two loops, because the compiler would unroll a single one before it could vectorize it.
        for (std::size_t l = 0; l < PANEL; ++l) t[l] = (line[l] / sum[l] - t[l]) * share[l];
        for (std::size_t l = 0; l < PANEL; ++l) line[l] = t[l];
    }
}

template <class F>
void each_output(const LossTable& w, float* z, float* rows, std::size_t p, F f) {
    const float C = static_cast<float>(w.d);
    const std::size_t per_target = w.d / w.targets;
    const float* share = w.share + p * PANEL;
    alignas(64) float sums[PANEL] = {};
    for (std::size_t c = 0; c < w.d; ++c) {
        float* line = z + (p * w.d + c) * PANEL;
        for (std::size_t l = 0; l < PANEL; ++l) {
            const Slope s = f(line[l], w.y[(p * PANEL + l) * w.targets + c / per_target], c);
            sums[l] += s.loss;
            line[l] = s.slope / C * share[l];
        }
    }
    for (std::size_t l = 0; l < PANEL; ++l) rows[p * PANEL + l] = sums[l] / C;
}

void loss(const LossTable& w, float* z, float* rows, std::size_t p0, std::size_t p1) {
    for (std::size_t p = p0; p < p1; ++p) {
        if (w.loss->kind == LossKind::cross_entropy) {
            cross_entropy(w, z, rows, p);
        } else {
            with_output_loss(w, [&](auto f) { each_output(w, z, rows, p, f); });
        }
    }
}

}  // namespace
