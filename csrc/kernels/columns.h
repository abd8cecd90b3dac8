// Embeddings of numbers: each feature has weights of its own and K values inside. Formulas: layers/columns.py.
//
//     plr         inside = cos v, sin v   (K = 2n)   v = 2π c x       slopes = −sin v, cos v, 1 where relu is open (D)
//     pbld        inside = cos v          (K = n)    v = 2π w x + b′  slopes = −sin v
//     piecewise   inside = where x lies in each bin  (K = n)          none
//
// Registers: forward keeps one line of sums, one loaded and one spread weight; waves are found line by line with what maths.h
// takes; gradients are vector16.h's eight sums, a dv of two lines inside.
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
        alignas(64) float angle[LANE], sine[LANE], cosine[LANE], minus[LANE];
        for (std::size_t l = 0; l < LANE; ++l) angle[l] = TWO_PI * x[l] * c + phase;
        circles(angle, LANE, sine, cosine);
        for (std::size_t l = 0; l < LANE; ++l) minus[l] = -sine[l];
        store_line(inside + k * LANE, load_line(cosine));
        store_line(slopes + k * LANE, load_line(minus));
        if (!both) continue;
        store_line(inside + (w.n + k) * LANE, load_line(sine));
        store_line(slopes + (w.n + k) * LANE, load_line(cosine));
    }
}

inline void bins(const Embedding& w, const float* x, float* inside, std::size_t f) {
    const float* edges = w.edges + f * (w.n + 1);
    for (std::size_t k = 0; k < w.n; ++k) {
        const float low = edges[k], width = edges[k + 1] - edges[k];
        const float least = k == 0 ? -__builtin_inff() : 0.0f, most = k + 1 == w.n ? __builtin_inff() : 1.0f;
        for (std::size_t l = 0; l < LANE; ++l) {
            const float t = (x[l] - low) / width;
            inside[k * LANE + l] = t < least ? least : t > most ? most : t;
        }
    }
}

void embed(const Embedding& w, const float* x, float* y, std::size_t d_y, float* inside, float* slopes, std::size_t f0,
           std::size_t f1, std::size_t p0, std::size_t p1) {
    const std::size_t per_slope = slopes_of(w);
    for (std::size_t p = p0; p < p1; ++p) {
        for (std::size_t f = f0; f < f1; ++f) {
            const float* from = x + (p * w.F + f) * LANE;
            float* to = y + (p * d_y + f * w.width) * LANE;
            if (w.numeric == Numeric::none) {
                for (std::size_t l = 0; l < LANE; ++l) to[l] = from[l];
                continue;
            }
            float* here = inside + (p * w.F + f) * w.K * LANE;
            if (w.numeric == Numeric::piecewise) {
                bins(w, from, here, f);
            } else {
                periods(w, from, here, slopes + (p * w.F + f) * per_slope * LANE, f);
            }
            if (w.numeric == Numeric::pbld) {
                for (std::size_t l = 0; l < LANE; ++l) to[l] = from[l];
                to += LANE;
            }
            const float* weight = w.weight + f * w.K * w.D;  // (K, D)
            for (std::size_t d = 0; d < w.D; ++d) {
                Line sum = spread(w.bias[f * w.D + d]);
                for (std::size_t k = 0; k < w.K; ++k) {
                    sum = fma(spread(weight[k * w.D + d]), load_line(here + k * LANE), sum);
                }
                float* z = to + d * LANE;
                store_line(z, sum);
                if (w.numeric != Numeric::plr) continue;
                float* open = slopes + ((p * w.F + f) * per_slope + 2 * w.n + d) * LANE;
                for (std::size_t l = 0; l < LANE; ++l) {
                    open[l] = z[l] > 0.0f ? 1.0f : 0.0f;
                    z[l] = z[l] < 0.0f ? 0.0f : z[l];
                }
            }
        }
    }
}

// Gradients of features f0 .. f1 - 1 over all panels.
void embed_gradient(const Embedding& w, const float* x, const float* g, std::size_t d_y, const float* inside,
                    const float* slopes, std::size_t panels, float* d_frequency, float* d_phase, float* d_weight,
                    float* d_bias, std::size_t f0, std::size_t f1) {
    const std::size_t per_slope = slopes_of(w);
    const std::size_t skip = w.numeric == Numeric::pbld ? 1 : 0;
    const std::size_t halves = w.numeric == Numeric::plr ? 2 : 1;
    for (std::size_t f = f0; f < f1; ++f) {
        // δ of output d of this feature, on panel p.
        const auto delta = [&](std::size_t p, std::size_t d) {
            const Line here = load_line(g + (p * d_y + f * w.width + skip + d) * LANE);
            if (w.numeric != Numeric::plr) return here;
            return here * load_line(slopes + ((p * w.F + f) * per_slope + 2 * w.n + d) * LANE);
        };
        sum_panels(w.D, panels, [&](std::size_t d, std::size_t p, const Line& sum) { return sum + delta(p, d); },
                   [&](std::size_t d, float sum) { d_bias[f * w.D + d] = sum; });
        sum_panels(w.K * w.D, panels, [&](std::size_t i, std::size_t p, const Line& sum) {
            return fma(delta(p, i % w.D), load_line(inside + ((p * w.F + f) * w.K + i / w.D) * LANE), sum);
        }, [&](std::size_t i, float sum) { d_weight[f * w.K * w.D + i] = sum; });
        if (w.numeric == Numeric::piecewise) continue;
        // dv of angle k, on panel p.
        const auto angle = [&](std::size_t p, std::size_t k) {
            const float* slope = slopes + ((p * w.F + f) * per_slope + k) * LANE;
            Line dv = spread(0.0f);
            for (std::size_t half = 0; half < halves; ++half) {
                Line dinside = spread(0.0f);
                for (std::size_t d = 0; d < w.D; ++d) {
                    dinside = fma(spread(w.weight[(f * w.K + half * w.n + k) * w.D + d]), delta(p, d), dinside);
                }
                dv = fma(dinside, load_line(slope + half * w.n * LANE), dv);
            }
            return dv;
        };
        sum_panels(w.n, panels, [&](std::size_t k, std::size_t p, const Line& sum) {
            return fma(angle(p, k), load_line(x + (p * w.F + f) * LANE), sum);
        }, [&](std::size_t k, float sum) { d_frequency[f * w.n + k] = TWO_PI * sum; });
        if (!d_phase) continue;
        sum_panels(w.n, panels, [&](std::size_t k, std::size_t p, const Line& sum) { return sum + angle(p, k); },
                   [&](std::size_t k, float sum) { d_phase[f * w.n + k] = sum; });
    }
}

}  // namespace
