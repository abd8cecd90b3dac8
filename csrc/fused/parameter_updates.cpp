// The fused core: gradients of parameters, their norms, and updates.
#include <algorithm>
#include <cmath>

#include "fused/core.h"

namespace multilayer {
namespace {

constexpr std::size_t GRAIN = 6;  // rows of a weight gradient per thread are a multiple of this, so all tiles are complete
constexpr std::size_t PART = 200'000'000;  // multiply-adds between two checks for a stop request

}  // namespace

ParameterArrays Fused::arrays_of(std::size_t parameter, std::size_t offset) {
    const std::size_t first = tensors_[parameter].offset + offset;
    const auto in = [&](std::size_t i) { return store_[i].size() ? store_[i].data() + first : nullptr; };
    return {in(0), in(2), in(3), in(4)};
}

void Fused::prepare_updates(double rate, double decay, std::uint64_t t, double scale) {
    const Optimizer& o = program_.optimizer;
    const StepConstants now = step_constants(o, static_cast<double>(t));
    for (std::size_t i = 0; i < program_.parameters.size(); ++i) {
        const Parameter& p = program_.parameters[i];
        const double step_rate = rate * p.rate_factor;
        const double shrink = 1.0 - step_rate * decay * p.decay_factor;
        updates_[i] = {.kind = o.kind,
                       .rate = static_cast<float>(step_rate * now.rate),
                       .shrink = static_cast<float>(shrink),
                       .l2 = static_cast<float>(program_.l2 * p.decay_factor),
                       .clip = static_cast<float>(program_.clip_value),
                       .scale = static_cast<float>(scale),
                       .momentum = static_cast<float>(now.momentum),
                       .rest1 = static_cast<float>(1.0 - o.beta1),
                       .beta2 = static_cast<float>(o.beta2),
                       .rest2 = static_cast<float>(1.0 - o.beta2),
                       .eps = static_cast<float>(now.eps),
                       .average = static_cast<float>(program_.average),
                       .rest_average = static_cast<float>(1.0 - program_.average)};
    }
}

WeightGradient Fused::gradient_at(const StepThread& w, const Node& node, float* stored) {
    const Op& op = *node.op;
    const bool gated = node.kind == Kind::glu;
    return {.delta = gated ? node.z : plan_.values[node.out].g,
            .rows = node.rows,
            .capacity = capacity_ * PANEL,
            .batch = w.batch,
            .first_row = 0,
            .split = in_halves(w.batch) ? panels_of(w.n_panels, 0, 2).end * PANEL : 0,
            .factor = static_cast<float>(op.factor),
            .d_in = op.d_in,
            .d_out = gated ? 2 * op.d_out : op.d_out,
            .arrays = arrays_of(at(op.weight)),
            .gradient = stored ? stored + tensors_[at(op.weight)].offset : nullptr,
            .update = stored ? nullptr : &updates_[at(op.weight)],
            .squares = squares_.data() + squares_at_[at(op.weight)],
            .upwards = upwards()};
}

bool Fused::in_halves(std::size_t batch) const { return few_linear_weights_ && batch >= HALVED && batch < WHOLE; }

void Fused::gradients_in_halves(const StepThread& w, float* stored) {
    // Threads 0 .. ⌈n/2⌉ - 1 process the first half, and split its units.
    const std::size_t half = 2 * w.thread / w.threads, middle = (w.threads + 1) / 2;
    const std::size_t place_in = half == 0 ? w.thread : w.thread - middle;
    const std::size_t together = half == 0 ? middle : w.threads - middle;
    const Range panels = panels_of(w.n_panels, half, 2);
    for (const Node& node : plan_.nodes) {
        if (node.kind != Kind::linear) continue;
        WeightGradient gradient = gradient_at(w, node, halves_[half].data());
        const Range units = share_of(gradient.d_out, GRAIN, place_in, together);
        gradient.delta += panels.first * gradient.d_out * PANEL;
        gradient.first_row = panels.first * PANEL, gradient.split = 0;
        gradient.batch = std::min(w.batch, panels.end * PANEL) - gradient.first_row;
        gradient.factor = 1.0f, gradient.squares = nullptr;
        kernels_.weight_gradient(gradient, units.first, units.end);
        if (node.op->bias != NONE) sum_half(w, node, half, units);
    }
    barrier(w);
    for (const Node& node : plan_.nodes) {
        if (node.kind != Kind::linear) continue;
        const WeightGradient gradient = gradient_at(w, node, stored);
        const Range units = share_of(gradient.d_out, GRAIN, w.thread, w.threads);
        const std::size_t offset = tensors_[at(node.op->weight)].offset;
        kernels_.join_gradient(gradient, halves_[0].data() + offset, halves_[1].data() + offset, units.first, units.end);
        if (node.op->bias != NONE) join_bias(node.op->bias, units, stored);
    }
}

void Fused::sum_half(const StepThread& w, const Node& node, std::size_t half, Range units) {
    const Range panels = panels_of(w.n_panels, half, 2);
    const std::size_t d = node.op->d_out;
    kernels_.sum_rows(plan_.values[node.out].g + panels.first * d * PANEL, nullptr, d, panels.end - panels.first,
                      halves_[half].data() + tensors_[at(node.op->bias)].offset, units.first, units.end);
}

void Fused::join_bias(int parameter, Range units, bool stored) {
    const std::size_t offset = tensors_[at(parameter)].offset;
    float* g = gradient_of(parameter);
    for (std::size_t u = units.first; u < units.end; ++u) g[u] = halves_[0].data()[offset + u] + halves_[1].data()[offset + u];
    if (!stored) update_vector(parameter, units);
}

void Fused::gradients_and_updates(const StepThread& w, float* stored) {
    if (w.threads > 1 && in_halves(w.batch)) return gradients_in_halves(w, stored);
    if (w.thread == 0) clear_shared();  // only thread 0 adds to shared gradients
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
        Node& node = plan_.nodes[upwards() ? plan_.nodes.size() - 1 - i : i];
        if (!node.learns || node.kind == Kind::leave) continue;
        const Op& op = *node.op;
        const Value &in = plan_.values[node.in], &out = plan_.values[node.out];
        switch (node.kind) {
            case Kind::linear:
            case Kind::glu: {
                const WeightGradient gradient = gradient_at(w, node, stored);
                const std::size_t rows = gradient.d_out;
                const Range units = share_of(rows, GRAIN, w.thread, w.threads);
                // Process some rows at a time if the step can still be discarded.
                const std::size_t row = std::max<std::size_t>(1, op.d_in * w.batch);
                const std::size_t at_once = stored ? (PART / row / GRAIN + 1) * GRAIN : rows;
                for (std::size_t u = units.first; u < units.end && !(stored && stopped(w)); u += at_once) {
                    kernels_.weight_gradient(gradient, u, std::min(u + at_once, units.end));
                }
                if (op.bias == NONE) break;
                if (gradient.split) {
                    for (std::size_t half = 0; half < 2; ++half) sum_half(w, node, half, units);
                    join_bias(op.bias, units, stored);
                } else {
                    sum(w, op.bias, gradient.delta, nullptr, rows, units, stored);
                }
                break;
            }
            case Kind::activation: {
                const Range units = share_of(out.d, PANEL, w.thread, w.threads);
                if (op.blend != NONE) sum(w, op.blend, node.d_blend, nullptr, out.d, units, stored);
                if (op.learned == NONE) break;
                if (!adds_up(op)) {
                    sum(w, op.learned, node.d_learned, nullptr, out.d, units, stored);
                } else if (w.thread == 0) {
                    add_shared(w, op, node, out.d, stored);
                }
                break;
            }
            case Kind::columns: columns_gradients(w, node, stored); break;
            default: {  // unit-wise operations use x, norms use x̂
                const Range units = share_of(op.d_in, PANEL, w.thread, w.threads);
                const float* factor = is_unitwise(node.kind) ? in.x : node.hat;
                if (op.weight != NONE) sum(w, op.weight, out.g, factor, op.d_in, units, stored);
                if (op.bias != NONE) sum(w, op.bias, out.g, nullptr, op.d_in, units, stored);
            }
        }
    }
}

void Fused::sum(const StepThread& w, int parameter, const float* x, const float* y, std::size_t d, Range units, bool stored) {
    sum_units(w, x, y, d, units, gradient_of(parameter), stored);
    if (!stored) update_vector(parameter, units);
}

void Fused::sum_units(const StepThread& w, const float* x, const float* y, std::size_t d, Range units, float* to, bool stored) {
    const std::size_t at_once = stored ? STRIP : d;
    for (std::size_t u = units.first; u < units.end && !(stored && stopped(w)); u += at_once) {
        kernels_.sum_rows(x, y, d, w.n_panels, to, u, std::min(u + at_once, units.end));
    }
}

void Fused::update_vector(int parameter, Range units) {
    if (units.first >= units.end) return;
    kernels_.update(updates_[at(parameter)], units.end - units.first, gradient_of(parameter) + units.first,
                    arrays_of(at(parameter), units.first));
}

bool Fused::adds_up(const Op& op) const {
    const auto same = [&op](const Op& other) { return other.learned == op.learned; };
    return program_.parameters[at(op.learned)].size != op.d_out ||
           std::count_if(program_.ops.begin(), program_.ops.end(), same) > 1;
}

void Fused::clear_shared() {
    std::fill(left_.begin(), left_.end(), 0);
    for (const Op& op : program_.ops) {
        if (op.learned == NONE || !adds_up(op)) continue;
        gradient_of(op.learned)[0] = 0.0f;
        ++left_[at(op.learned)];
    }
}

void Fused::add_shared(const StepThread& w, const Op& op, const Node& node, std::size_t d, bool stored) {
    sum_units(w, node.d_learned, nullptr, d, {0, d}, units_.data(), stored);
    float* g = gradient_of(op.learned);
    float sum = 0.0f;
    for (std::size_t u = 0; u < d; ++u) sum += units_[u];
    g[0] += sum;
    if (--left_[at(op.learned)] == 0 && !stored) update_vector(op.learned, {0, 1});
}

void Fused::columns_gradients(const StepThread& w, Node& node, bool stored) {
    const Op& op = *node.op;
    const Columns& c = op.columns;
    const Value &in = plan_.values[node.in], &out = plan_.values[node.out];
    const Embedding e = embedding_at(node);
    if (c.weight != NONE) {
        const Range f = share_of(e.F, 1, w.thread, w.threads);
        const auto gradient = [&](int p) { return p == NONE ? nullptr : gradient_of(p); };
        for (std::size_t i = f.first; i < f.end && !(stored && stopped(w)); ++i) {
            kernels_.embed_gradient(e, in.x, out.g, out.d, node.inside, node.slopes, w.n_panels, gradient(c.frequency),
                                    gradient(c.phase), gradient(c.weight), gradient(c.bias), i, i + 1);
        }
        if (!stored) {
            for (const int p : {c.frequency, c.phase}) {
                if (p != NONE) update_vector(p, {f.first * e.n, f.end * e.n});
            }
            update_vector(c.weight, {f.first * e.K * e.D, f.end * e.K * e.D});
            update_vector(c.bias, {f.first * e.D, f.end * e.D});
        }
    }
    // Category tables are assigned to threads cyclically. Rows are added in the order of the batch.
    std::size_t unit = e.F * e.width, turn = 0;
    for (std::size_t i = 0; i < c.categories.size(); unit += c.categories[i++].width) {
        const Category& category = c.categories[i];
        if (category.table == NONE || turn++ % w.threads != w.thread || (stored && stopped(w))) continue;
        float* g = gradient_of(category.table);
        const std::size_t size = program_.parameters[at(category.table)].size;
        std::fill_n(g, size, 0.0f);
        const std::vector<std::int64_t>& codes = w.batch_rows->codes;
        for (std::size_t b = 0; b < w.batch; ++b) {
            const auto code = static_cast<std::size_t>(codes[b * c.categories.size() + i]);
            const float* from = out.g + (b / PANEL * out.d + unit) * PANEL + b % PANEL;
            for (std::size_t j = 0; j < category.width; ++j) g[code * category.width + j] += from[j * PANEL];
        }
        if (!stored) update_vector(category.table, {0, size});
    }
}

void Fused::apply_stored(const StepThread& w, const float* stored) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const Tensor& t = tensors_[i];
        if (t.matrix) {
            const Range part = share_of(t.shape.size(), PANEL, w.thread, w.threads);
            if (part.first == part.end) continue;
            kernels_.update(updates_[i], part.end - part.first, stored + t.offset + part.first, arrays_of(i, part.first));
        } else {
            update_vector(static_cast<int>(i), share_of(t.shape.columns, PANEL, w.thread, w.threads));
        }
    }
}

double Fused::gradient_squares(std::size_t i) const {
    const Tensor& t = tensors_[i];
    const float* squares = squares_.data() + squares_at_[i];
    const float* g = vectors_.data() + vector_at_[i];
    double sum = 0.0;
    for (std::size_t o = 0; t.matrix && o < t.shape.rows; ++o) sum += static_cast<double>(squares[o * PANEL]);
    for (std::size_t j = 0; !t.matrix && j < t.shape.columns; ++j) sum += static_cast<double>(g[j]) * static_cast<double>(g[j]);
    return sum;
}

double Fused::gradient_norm() const {
    double sum = 0.0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) sum += gradient_squares(i);
    return std::sqrt(sum);
}

void Fused::record_statistics() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) statistics.push_back(std::sqrt(gradient_squares(i)));
    for (const Tensor& t : tensors_) {
        const float* p = store_[0].data() + t.offset;  // padding is zero
        double sum = 0.0;
        for (std::size_t j = 0; j < t.shape.size(); ++j) sum += static_cast<double>(p[j]) * static_cast<double>(p[j]);
        statistics.push_back(std::sqrt(sum));
    }
}

double Fused::total_loss(const BatchRows& batch_rows, std::size_t n) {
    double sum = 0.0;
    for (std::size_t b = 0; b < n; ++b) {
        sum += static_cast<double>(batch_rows.loss[b]) * static_cast<double>(batch_rows.share[b]);
    }
    return sum;
}

}  // namespace multilayer
