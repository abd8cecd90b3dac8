// The loss of each row and its slope by the outputs, in place of them. Formulas: losses.py. A row is a lane: softmax
// runs down the classes. Slopes are times the row's share of the weights, which is 0 where there is no row.
//
// Registers: they stream, class by class. Four lines run down with cross-entropy (top, Σ exp, Σ t z, Σ t), one with the others,
// and stay in registers or in the first cache as the compiler finds room beside what maths.h takes. Sums over many classes
// are sums of sums over TERMS of them: rounding then grows with their root, where thousands of equal terms would all be
// rounded the same way.
#pragma once

namespace {

// The targets of a panel's rows, class by class: where they come from is settled before the loops, which are then vector code.
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
    // Σ t (z − top): where a target is 0 the product may not be (−∞ times 0).
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
        // In two loops: one alone is unrolled before it can become vector code.
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
