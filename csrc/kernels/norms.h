// Normalisation on panels: a row is a lane, so sums over its features run down the panel. Formulas: layers/norm.py.
//
// Registers: two lines of sums on the way down, then mean, dot and scale, and two that were loaded: five lines, 5 of 32 and 10
// of 16; with LANES = 4 it is 20, and some are spilled. sum_rows is vector16.h's.
#pragma once

namespace {

inline void norm_slice(const Norm& w, const float* x, float* y, float* hat, float* inverse, std::size_t u0,
                       std::size_t n) {
    const float count = static_cast<float>(n);
    Line mean = spread(0.0f), square = spread(0.0f);
    if (w.kind != Kind::rms_norm) {
        for (std::size_t u = 0; u < n; ++u) mean = mean + load_line(x + u * LANE);
        mean = mean * spread(1.0f / count);
    }
    for (std::size_t u = 0; u < n; ++u) {
        const Line c = load_line(x + u * LANE) - mean;
        square = fma(c, c, square);
    }
    store_line(inverse, square);
    for (std::size_t l = 0; l < LANE; ++l) inverse[l] = 1.0f / __builtin_sqrtf(inverse[l] / count + w.eps);
    const Line scale = load_line(inverse);
    for (std::size_t u = 0; u < n; ++u) {
        const Line h = (load_line(x + u * LANE) - mean) * scale;
        store_line(hat + u * LANE, h);
        store_line(y + u * LANE, fma(h, spread(w.weight[u0 + u]), spread(w.bias ? w.bias[u0 + u] : 0.0f)));
    }
}

void norm(const Norm& w, const float* x, float* y, float* hat, float* inverse, std::size_t p0, std::size_t p1) {
    for (std::size_t p = p0; p < p1; ++p) {
        const std::size_t at = p * w.d * LANE;
        if (w.kind == Kind::batch_norm) {
            for (std::size_t u = 0; u < w.d; ++u) {
                for (std::size_t l = 0; l < LANE; ++l) {
                    const std::size_t i = at + u * LANE + l;
                    const float h = (x[i] - w.mean[u]) * w.inverse[u];
                    hat[i] = h;
                    y[i] = fma(h, w.weight[u], w.bias[u]);
                }
            }
            continue;
        }
        const std::size_t n = w.d / w.groups;
        for (std::size_t g = 0; g < w.groups; ++g) {
            const std::size_t first = at + g * n * LANE;
            norm_slice(w, x + first, y + first, hat + first, inverse + (p * w.groups + g) * LANE, g * n, n);
        }
    }
}

void norm_backward(const Norm& w, const float* g, const float* hat, const float* inverse, float* dx, std::size_t p0,
                   std::size_t p1) {
    const std::size_t n = w.d / w.groups;
    const Line count = spread(1.0f / static_cast<float>(n));
    for (std::size_t p = p0; p < p1; ++p) {
        for (std::size_t group = 0; group < w.groups; ++group) {
            const std::size_t first = (p * w.d + group * n) * LANE;
            const float* gamma = w.weight + group * n;
            const Line scale = load_line(inverse + (p * w.groups + group) * LANE);
            Line mean = spread(0.0f), dot = spread(0.0f);
            for (std::size_t u = 0; u < n; ++u) {
                const Line d = load_line(g + first + u * LANE) * spread(gamma[u]);
                mean = mean + d;
                dot = fma(d, load_line(hat + first + u * LANE), dot);
            }
            mean = w.kind == Kind::rms_norm ? spread(0.0f) : mean * count;
            dot = dot * count;
            for (std::size_t u = 0; u < n; ++u) {
                const std::size_t i = first + u * LANE;
                const Line d = load_line(g + i) * spread(gamma[u]) - mean;
                store_line(dx + i, scale * (d - load_line(hat + i) * dot));
            }
        }
    }
}

// Lanes past the last row are copies of a row and must not count: the last panel is summed up to `rows` lanes.
inline std::size_t rows_of(std::size_t batch, std::size_t p) {
    return batch - p * LANE < LANE ? batch - p * LANE : LANE;
}

void batch_statistics(const float* x, std::size_t d, std::size_t batch, float eps, float* mean, float* inverse,
                      float* variance, std::size_t u0, std::size_t u1) {
    const std::size_t panels = (batch + LANE - 1) / LANE;
    const float count = static_cast<float>(batch);
    alignas(64) float counted[LANE];
    for (std::size_t l = 0; l < LANE; ++l) counted[l] = l < rows_of(batch, panels - 1) ? 1.0f : 0.0f;
    const Line ones = spread(1.0f), last = load_line(counted);
    for (std::size_t u = u0; u < u1; ++u) {
        Line sums = spread(0.0f), squares = spread(0.0f);
        for (std::size_t p = 0; p < panels; ++p) {
            sums = fma(load_line(x + (p * d + u) * LANE), p + 1 < panels ? ones : last, sums);
        }
        const float m = lane_sum(sums) / count;
        for (std::size_t p = 0; p < panels; ++p) {
            const Line c = (load_line(x + (p * d + u) * LANE) - spread(m)) * (p + 1 < panels ? ones : last);
            squares = fma(c, c, squares);
        }
        const float sum = lane_sum(squares);
        mean[u] = m;
        inverse[u] = 1.0f / __builtin_sqrtf(sum / count + eps);
        variance[u] = sum / (count - 1.0f);
    }
}

// δ is 0 in lanes past the last row, and `hat` is finite there: sums need no care.
void batch_backward(const Norm& w, const float* g, const float* hat, std::size_t batch, float* dx, std::size_t u0,
                    std::size_t u1) {
    const std::size_t panels = (batch + LANE - 1) / LANE;
    const float count = static_cast<float>(batch);
    for (std::size_t u = u0; u < u1; ++u) {
        const Line gamma = spread(w.weight[u]);
        Line sums = spread(0.0f), dots = spread(0.0f);
        for (std::size_t p = 0; p < panels; ++p) {
            const std::size_t at = (p * w.d + u) * LANE;
            const Line d = load_line(g + at) * gamma;
            sums = sums + d;
            dots = fma(d, load_line(hat + at), dots);
        }
        const Line mean = spread(lane_sum(sums) / count), dot = spread(lane_sum(dots) / count);
        const Line scale = spread(w.inverse[u]);
        for (std::size_t p = 0; p < panels; ++p) {
            const std::size_t at = (p * w.d + u) * LANE;
            store_line(dx + at, scale * ((load_line(g + at) * gamma - mean) - load_line(hat + at) * dot));
        }
        const std::size_t end = ((panels - 1) * w.d + u) * LANE;
        for (std::size_t l = rows_of(batch, panels - 1); l < LANE; ++l) dx[end + l] = 0.0f;
    }
}

void sum_rows(const float* x, const float* y, std::size_t d, std::size_t panels, float* out, std::size_t u0,
              std::size_t u1) {
    const auto put = [&](std::size_t i, float sum) { out[u0 + i] = sum; };
    const auto at = [&](std::size_t i, std::size_t p) { return (p * d + u0 + i) * LANE; };
    if (y) {
        sum_panels(u1 - u0, panels, [&](std::size_t i, std::size_t p, const Line& sum) {
            return fma(load_line(x + at(i, p)), load_line(y + at(i, p)), sum);
        }, put);
    } else {
        sum_panels(u1 - u0, panels, [&](std::size_t i, std::size_t p, const Line& sum) {
            return sum + load_line(x + at(i, p));
        }, put);
    }
}

}  // namespace
