// Embeddings of numbers. Each feature has its own weights and K hidden values. Formulas: nn/layers/columns.py.
//
//     plr         inside = cos v, sin v   (K = 2n)   v = 2π c x       slopes = −sin v, cos v, and 1 where relu is active (D)
//     pbld        inside = cos v          (K = n)    v = 2π w x + b′  slopes = −sin v
//     piecewise   inside = position of x in each bin (K = n)          none
//
// Registers: `embed` uses one line of sums, one loaded line and one broadcast weight. Sine and cosine are computed line by
// line, with the registers of maths.h. Gradients use the eight sums of vector16.h, and two lines for dv.
#pragma once

namespace {

inline std::size_t slopes_of(const Embedding& w) {
    return w.numeric == Numeric::plr ? 2 * w.n + w.D : w.numeric == Numeric::pbld ? w.n : 0;
}

constexpr float TWO_PI = 6.283185307f;

inline void periods(const Embedding& w, const float* x, float* inside, float* slopes, std::size_t f) {
    const bool both = w.numeric == Numeric::plr;
    for (std::size_t k = 0; k < w.n; ++k) {
        const float c = w.frequency[f * w.n + k], phase = both ? 0.0f : w.phase[f * w.n + k];
        alignas(64) float angle[PANEL], sine[PANEL], cosine[PANEL], minus[PANEL];
        for (std::size_t l = 0; l < PANEL; ++l) angle[l] = TWO_PI * x[l] * c + phase;
        circles(angle, PANEL, sine, cosine);
        for (std::size_t l = 0; l < PANEL; ++l) minus[l] = -sine[l];
        store16(inside + k * PANEL, load16(cosine));
        store16(slopes + k * PANEL, load16(minus));
        if (!both) continue;
        store16(inside + (w.n + k) * PANEL, load16(sine));
        store16(slopes + (w.n + k) * PANEL, load16(cosine));
    }
}

inline void bins(const Embedding& w, const float* x, float* inside, std::size_t f) {
    const float* edges = w.edges + f * (w.n + 1);
    for (std::size_t k = 0; k < w.n; ++k) {
        const float low = edges[k], width = edges[k + 1] - edges[k];
        const float least = k == 0 ? -__builtin_inff() : 0.0f, most = k + 1 == w.n ? __builtin_inff() : 1.0f;
        for (std::size_t l = 0; l < PANEL; ++l) {
            const float t = (x[l] - low) / width;
            inside[k * PANEL + l] = t < least ? least : t > most ? most : t;
        }
    }
}

void embed(const Embedding& w, const float* x, float* y, std::size_t d_y, float* inside, float* slopes, std::size_t f0,
           std::size_t f1, std::size_t p0, std::size_t p1) {
    const std::size_t per_slope = slopes_of(w);
    for (std::size_t p = p0; p < p1; ++p) {
        for (std::size_t f = f0; f < f1; ++f) {
            const float* from = x + (p * w.F + f) * PANEL;
            float* to = y + (p * d_y + f * w.width) * PANEL;
            if (w.numeric == Numeric::none) {
                for (std::size_t l = 0; l < PANEL; ++l) to[l] = from[l];
                continue;
            }
            float* here = inside + (p * w.F + f) * w.K * PANEL;
            if (w.numeric == Numeric::piecewise) {
                bins(w, from, here, f);
            } else {
                periods(w, from, here, slopes + (p * w.F + f) * per_slope * PANEL, f);
            }
            if (w.numeric == Numeric::pbld) {
                for (std::size_t l = 0; l < PANEL; ++l) to[l] = from[l];
                to += PANEL;
            }
            const float* weight = w.weight + f * w.K * w.D;  // (K, D)
            for (std::size_t d = 0; d < w.D; ++d) {
                Vector16 sum = splat16(w.bias[f * w.D + d]);
                for (std::size_t k = 0; k < w.K; ++k) {
                    sum = fma(splat16(weight[k * w.D + d]), load16(here + k * PANEL), sum);
                }
                float* z = to + d * PANEL;
                store16(z, sum);
                if (w.numeric != Numeric::plr) continue;
                float* open = slopes + ((p * w.F + f) * per_slope + 2 * w.n + d) * PANEL;
                for (std::size_t l = 0; l < PANEL; ++l) {
                    open[l] = z[l] > 0.0f ? 1.0f : 0.0f;
                    z[l] = z[l] < 0.0f ? 0.0f : z[l];
                }
            }
        }
    }
}

// Computes the gradients of features f0 .. f1 - 1 over all panels.
void embed_gradient(const Embedding& w, const float* x, const float* g, std::size_t d_y, const float* inside,
                    const float* slopes, std::size_t panels, float* d_frequency, float* d_phase, float* d_weight,
                    float* d_bias, std::size_t f0, std::size_t f1) {
    const std::size_t per_slope = slopes_of(w);
    const std::size_t skip = w.numeric == Numeric::pbld ? 1 : 0;
    const std::size_t halves = w.numeric == Numeric::plr ? 2 : 1;
    for (std::size_t f = f0; f < f1; ++f) {
        // δ of output d of this feature, in panel p.
        const auto delta = [&](std::size_t p, std::size_t d) {
            const Vector16 here = load16(g + (p * d_y + f * w.width + skip + d) * PANEL);
            if (w.numeric != Numeric::plr) return here;
            return here * load16(slopes + ((p * w.F + f) * per_slope + 2 * w.n + d) * PANEL);
        };
        sum_panels(w.D, panels, [&](std::size_t d, std::size_t p, const Vector16& sum) { return sum + delta(p, d); },
                   [&](std::size_t d, float sum) { d_bias[f * w.D + d] = sum; });
        sum_panels(w.K * w.D, panels, [&](std::size_t i, std::size_t p, const Vector16& sum) {
            return fma(delta(p, i % w.D), load16(inside + ((p * w.F + f) * w.K + i / w.D) * PANEL), sum);
        }, [&](std::size_t i, float sum) { d_weight[f * w.K * w.D + i] = sum; });
        if (w.numeric == Numeric::piecewise) continue;
        // dv of angle k, in panel p.
        const auto angle = [&](std::size_t p, std::size_t k) {
            const float* slope = slopes + ((p * w.F + f) * per_slope + k) * PANEL;
            Vector16 dv = splat16(0.0f);
            for (std::size_t half = 0; half < halves; ++half) {
                Vector16 dinside = splat16(0.0f);
                for (std::size_t d = 0; d < w.D; ++d) {
                    dinside = fma(splat16(w.weight[(f * w.K + half * w.n + k) * w.D + d]), delta(p, d), dinside);
                }
                dv = fma(dinside, load16(slope + half * w.n * PANEL), dv);
            }
            return dv;
        };
        sum_panels(w.n, panels, [&](std::size_t k, std::size_t p, const Vector16& sum) {
            return fma(angle(p, k), load16(x + (p * w.F + f) * PANEL), sum);
        }, [&](std::size_t k, float sum) { d_frequency[f * w.n + k] = TWO_PI * sum; });
        if (!d_phase) continue;
        sum_panels(w.n, panels, [&](std::size_t k, std::size_t p, const Vector16& sum) { return sum + angle(p, k); },
                   [&](std::size_t k, float sum) { d_phase[f * w.n + k] = sum; });
    }
}

}  // namespace
