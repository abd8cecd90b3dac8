// Embeddings of numbers: each feature has weights of its own and K values inside. Formulas: layers/columns.py.
//
//     plr         inside = cos v, sin v   (K = 2n)   v = 2π c x       slopes = −sin v, cos v, 1 where relu is open (D)
//     pbld        inside = cos v          (K = n)    v = 2π w x + b′  slopes = −sin v
//     piecewise   inside = where x lies in each bin  (K = n)          none
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
        float *here = inside + k * LANE, *slope = slopes + k * LANE;
        alignas(64) float sine[LANE], cosine[LANE];
        for (std::size_t l = 0; l < LANE; ++l) {
            const Circle at = circle_of(TWO_PI * x[l] * c + phase);
            sine[l] = at.sine, cosine[l] = at.cosine;
        }
        for (std::size_t l = 0; l < LANE; ++l) here[l] = cosine[l], slope[l] = -sine[l];
        if (both) {
            for (std::size_t l = 0; l < LANE; ++l) here[w.n * LANE + l] = sine[l], slope[w.n * LANE + l] = cosine[l];
        }
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
        for (std::size_t d = 0; d < w.D; ++d) {
            Line bias = spread(0.0f);
            for (std::size_t p = 0; p < panels; ++p) bias = bias + delta(p, d);
            d_bias[f * w.D + d] = lane_sum(bias);
            for (std::size_t k = 0; k < w.K; ++k) {
                Line sum = spread(0.0f);
                for (std::size_t p = 0; p < panels; ++p) {
                    sum = fma(delta(p, d), load_line(inside + ((p * w.F + f) * w.K + k) * LANE), sum);
                }
                d_weight[(f * w.K + k) * w.D + d] = lane_sum(sum);
            }
        }
        if (w.numeric == Numeric::piecewise) continue;
        for (std::size_t k = 0; k < w.n; ++k) {
            Line frequency = spread(0.0f), phase = spread(0.0f);
            for (std::size_t p = 0; p < panels; ++p) {
                const float* slope = slopes + ((p * w.F + f) * per_slope + k) * LANE;
                Line dv = spread(0.0f);
                for (std::size_t half = 0; half < halves; ++half) {
                    Line dinside = spread(0.0f);
                    for (std::size_t d = 0; d < w.D; ++d) {
                        dinside = fma(spread(w.weight[(f * w.K + half * w.n + k) * w.D + d]), delta(p, d), dinside);
                    }
                    dv = fma(dinside, load_line(slope + half * w.n * LANE), dv);
                }
                frequency = fma(dv, load_line(x + (p * w.F + f) * LANE), frequency);
                phase = phase + dv;
            }
            d_frequency[f * w.n + k] = TWO_PI * lane_sum(frequency);
            if (d_phase) d_phase[f * w.n + k] = lane_sum(phase);
        }
    }
}

}  // namespace
