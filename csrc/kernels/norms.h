// Normalization on panels. Each lane is a row, so sums over features loop down the panel. Formulas: nn/layers/norms.py.
//
// Registers: two lines of sums in the first loop; mean, dot and scale and two loaded lines in the second. These five
// lines take 5 of 32 or 10 of 16 registers. With LANES = 4 they take 20, and some are spilled. See vector16.h for
// sum_rows.
#pragma once

namespace {

inline void norm_slice(const Norm& w, const float* x, float* y, float* hat, float* inverse, std::size_t u0,
                       std::size_t n) {
    const float count = static_cast<float>(n);
    Vector16 mean = splat16(0.0f), square = splat16(0.0f);
    if (w.kind != Kind::rms_norm) {
        for (std::size_t u = 0; u < n; ++u) mean = mean + load16(x + u * PANEL);
        mean = mean * splat16(1.0f / count);
    }
    for (std::size_t u = 0; u < n; ++u) {
        const Vector16 c = load16(x + u * PANEL) - mean;
        square = fma(c, c, square);
    }
    store16(inverse, square);
    for (std::size_t l = 0; l < PANEL; ++l) inverse[l] = 1.0f / __builtin_sqrtf(inverse[l] / count + w.eps);
    const Vector16 scale = load16(inverse);
    for (std::size_t u = 0; u < n; ++u) {
        const Vector16 h = (load16(x + u * PANEL) - mean) * scale;
        store16(hat + u * PANEL, h);
        store16(y + u * PANEL, fma(h, splat16(w.weight[u0 + u]), splat16(w.bias ? w.bias[u0 + u] : 0.0f)));
    }
}

void norm(const Norm& w, const float* x, float* y, float* hat, float* inverse, std::size_t p0, std::size_t p1) {
    for (std::size_t p = p0; p < p1; ++p) {
        const std::size_t at = p * w.d * PANEL;
        if (w.kind == Kind::batch_norm) {
            for (std::size_t u = 0; u < w.d; ++u) {
                for (std::size_t l = 0; l < PANEL; ++l) {
                    const std::size_t i = at + u * PANEL + l;
                    const float h = (x[i] - w.mean[u]) * w.inverse[u];
                    hat[i] = h;
                    y[i] = fma(h, w.weight[u], w.bias[u]);
                }
            }
            continue;
        }
        const std::size_t n = w.d / w.groups;
        for (std::size_t g = 0; g < w.groups; ++g) {
            const std::size_t first = at + g * n * PANEL;
            norm_slice(w, x + first, y + first, hat + first, inverse + (p * w.groups + g) * PANEL, g * n, n);
        }
    }
}

void norm_backward(const Norm& w, const float* g, const float* hat, const float* inverse, float* dx, std::size_t p0,
                   std::size_t p1) {
    const std::size_t n = w.d / w.groups;
    const Vector16 count = splat16(1.0f / static_cast<float>(n));
    for (std::size_t p = p0; p < p1; ++p) {
        for (std::size_t group = 0; group < w.groups; ++group) {
            const std::size_t first = (p * w.d + group * n) * PANEL;
            const float* gamma = w.weight + group * n;
            const Vector16 scale = load16(inverse + (p * w.groups + group) * PANEL);
            Vector16 mean = splat16(0.0f), dot = splat16(0.0f);
            for (std::size_t u = 0; u < n; ++u) {
                const Vector16 d = load16(g + first + u * PANEL) * splat16(gamma[u]);
                mean = mean + d;
                dot = fma(d, load16(hat + first + u * PANEL), dot);
            }
            mean = w.kind == Kind::rms_norm ? splat16(0.0f) : mean * count;
            dot = dot * count;
            for (std::size_t u = 0; u < n; ++u) {
                const std::size_t i = first + u * PANEL;
                const Vector16 d = load16(g + i) * splat16(gamma[u]) - mean;
                store16(dx + i, scale * (d - load16(hat + i) * dot));
            }
        }
    }
}

// Returns the number of lanes of a panel that hold rows. The other lanes of the last panel are copies of a row and must
// not count.
inline std::size_t rows_of(std::size_t batch, std::size_t p) {
    return batch - p * PANEL < PANEL ? batch - p * PANEL : PANEL;
}

void batch_statistics(const float* x, std::size_t d, std::size_t batch, float eps, float* mean, float* inverse,
                      float* variance, std::size_t u0, std::size_t u1) {
    const std::size_t panels = (batch + PANEL - 1) / PANEL;
    const float count = static_cast<float>(batch);
    alignas(64) float counted[PANEL];
    for (std::size_t l = 0; l < PANEL; ++l) counted[l] = l < rows_of(batch, panels - 1) ? 1.0f : 0.0f;
    const Vector16 ones = splat16(1.0f), last = load16(counted);
    for (std::size_t u = u0; u < u1; ++u) {
        Vector16 sums = splat16(0.0f), squares = splat16(0.0f);
        for (std::size_t p = 0; p < panels; ++p) {
            sums = fma(load16(x + (p * d + u) * PANEL), p + 1 < panels ? ones : last, sums);
        }
        const float m = sum16(sums) / count;
        for (std::size_t p = 0; p < panels; ++p) {
            const Vector16 c = (load16(x + (p * d + u) * PANEL) - splat16(m)) * (p + 1 < panels ? ones : last);
            squares = fma(c, c, squares);
        }
        const float sum = sum16(squares);
        mean[u] = m;
        inverse[u] = 1.0f / __builtin_sqrtf(sum / count + eps);
        variance[u] = sum / (count - 1.0f);
    }
}

// Sums need no special case for padding: δ is 0 there, and `hat` is finite.
void batch_backward(const Norm& w, const float* g, const float* hat, std::size_t batch, float* dx, std::size_t u0,
                    std::size_t u1) {
    const std::size_t panels = (batch + PANEL - 1) / PANEL;
    const float count = static_cast<float>(batch);
    for (std::size_t u = u0; u < u1; ++u) {
        const Vector16 gamma = splat16(w.weight[u]);
        Vector16 sums = splat16(0.0f), dots = splat16(0.0f);
        for (std::size_t p = 0; p < panels; ++p) {
            const std::size_t at = (p * w.d + u) * PANEL;
            const Vector16 d = load16(g + at) * gamma;
            sums = sums + d;
            dots = fma(d, load16(hat + at), dots);
        }
        const Vector16 mean = splat16(sum16(sums) / count), dot = splat16(sum16(dots) / count);
        const Vector16 scale = splat16(w.inverse[u]);
        for (std::size_t p = 0; p < panels; ++p) {
            const std::size_t at = (p * w.d + u) * PANEL;
            store16(dx + at, scale * ((load16(g + at) * gamma - mean) - load16(hat + at) * dot));
        }
        const std::size_t end = ((panels - 1) * w.d + u) * PANEL;
        for (std::size_t l = rows_of(batch, panels - 1); l < PANEL; ++l) dx[end + l] = 0.0f;
    }
}

void sum_rows(const float* x, const float* y, std::size_t d, std::size_t panels, float* out, std::size_t u0,
              std::size_t u1) {
    const auto put = [&](std::size_t i, float sum) { out[u0 + i] = sum; };
    const auto at = [&](std::size_t i, std::size_t p) { return (p * d + u0 + i) * PANEL; };
    if (y) {
        sum_panels(u1 - u0, panels, [&](std::size_t i, std::size_t p, const Vector16& sum) {
            return fma(load16(x + at(i, p)), load16(y + at(i, p)), sum);
        }, put);
    } else {
        sum_panels(u1 - u0, panels, [&](std::size_t i, std::size_t p, const Vector16& sum) {
            return sum + load16(x + at(i, p));
        }, put);
    }
}

}  // namespace
