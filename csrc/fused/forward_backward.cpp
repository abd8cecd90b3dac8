// The fused core: gathers the rows of a step, and computes the forward and the backward pass.
#include <algorithm>
#include <cstring>

#include "fused/core.h"
#include "runtime/simd.h"

namespace multilayer {
namespace {

// Copies line by line. For a single copy of unknown length, compilers use an instruction with a long start-up time.
void copy_lines(const float* from, std::size_t n, float* to) {
    std::size_t i = 0;
    for (; i + PANEL <= n; i += PANEL) std::memcpy(to + i, from + i, PANEL * sizeof(float));
    for (; i < n; ++i) to[i] = from[i];
}

constexpr std::size_t AHEAD = 16;      // rows that are prefetched before they are copied
constexpr std::size_t FETCHED = 128;   // maximum prefetched values per row; the processor prefetches longer rows itself

void fetch(const Table<float>& table, std::size_t row, std::size_t F) {
    const float* x = table.x + row * table.stride;
    for (std::size_t f = 0; f < std::min(F, FETCHED); f += PANEL) simd::fetch(x + f);
    if (table.classes) simd::fetch(table.classes + row);
}

}  // namespace

void Fused::gather(const StepThread& w, const Table<float>& table, std::span<const std::int64_t> rows,
                   std::span<const std::int64_t> ids) {
    BatchRows& batch_rows = *w.batch_rows;
    const std::size_t F = program_.numeric, n = rows.size();
    const std::size_t categories = this->categories();
    double weights = static_cast<double>(n);
    if (w.training && table.weight) {
        weights = 0.0;
        for (const std::int64_t row : rows) weights += static_cast<double>(table.weight[row]);
    }
    const Range panels = rows_of(w);
    const auto each = static_cast<float>(1.0 / weights);
    const Value& input = plan_.values[0];
    Node* first = plan_.raw ? &plan_.nodes.front() : nullptr;
    for (std::size_t p = panels.first; p < panels.end && !stopped(w); ++p) {
        for (std::size_t l = 0; l < PANEL; ++l) {
            // After the last row, panels are filled with copies of the first row with share 0, so that all values are
            // finite.
            const std::size_t b = p * PANEL + l, i = b - w.first_row < n ? b - w.first_row : 0;
            const auto row = static_cast<std::size_t>(rows[i]);
            const float* x = table.x + row * table.stride;
            if (b - w.first_row + AHEAD < n) fetch(table, static_cast<std::size_t>(rows[b - w.first_row + AHEAD]), F);
            if (first) {
                const Strips strips{capacity_ * PANEL, F};
                for (std::size_t f = 0; f < F; f += STRIP) copy_lines(x + f, std::min(STRIP, F - f), first->rows + strips.at(b, f));
            } else {
                for (std::size_t f = 0; f < F; ++f) input.x[(p * F + f) * PANEL + l] = x[f];
            }
            for (std::size_t c = 0; c < categories; ++c) {
                batch_rows.codes[b * categories + c] = table.codes[row * categories + c];
            }
            if (!w.training) continue;
            batch_rows.ids[b] = static_cast<std::uint32_t>(ids[i]);
            const float share = table.weight ? static_cast<float>(static_cast<double>(table.weight[row]) / weights) : each;
            batch_rows.share[b] = b < n ? share : 0.0f;
            if (table.classes) batch_rows.classes[b] = table.classes[row];
            if (table.y) std::copy_n(table.y + row * table.targets, table.targets, batch_rows.y.data() + b * table.targets);
        }
        if (first) kernels_.to_panels(first->rows, {capacity_ * PANEL, F}, input.x, {0, F, p, p + 1});
    }
    barrier_after_units(w);
}

Affine Fused::affine_of(const Node& node) const {
    const Op& op = *node.op;
    const std::size_t rows = op.kind == Kind::glu ? 2 * op.d_out : op.d_out;
    return {parameter(op.weight), parameter(op.bias), static_cast<float>(op.factor), op.d_in, rows};
}

UnitCounter Fused::counter_of(const StepThread& w, const Node& node) {
    const CountedRange& range = node.op->counted;
    UnitCounter counter{static_cast<float>(range.inactive_low), static_cast<float>(range.inactive_high),
                        static_cast<float>(range.flat_low), static_cast<float>(range.flat_high), w.batch, nullptr, nullptr};
    if (!w.training || counts_.empty() || !range.any()) return counter;
    std::int64_t* counts = counts_[w.thread].data() + node.counted_at;
    if (range.has_inactive()) counter.inactive = counts;
    if (range.has_flat()) counter.flat = counts + node.op->d_out;
    return counter;
}

Pointwise Fused::pointwise_of(const StepThread& w, const Node& node, std::uint32_t epoch, double dropout) {
    const Op& op = *node.op;
    const bool training = w.training;
    const bool active = op.kind == Kind::activation;
    const double p = node.dropout ? node.dropout->p * dropout : 0.0;
    return {.function = active ? op.function : Function::identity,
            .constant = static_cast<float>(op.function == Function::silu ? 1.0 : op.constant),
            .learned = active ? parameter(op.learned) : nullptr,
            .per_unit = active && op.learned != NONE && program_.parameters[at(op.learned)].size > 1,
            .blend = active ? parameter(op.blend) : nullptr,
            .d = plan_.values[node.out].d,
            .slope = training ? node.slope : nullptr,
            .d_learned = training ? node.d_learned : nullptr,
            .d_blend = training ? node.d_blend : nullptr,
            .drops = training && p > 0.0,
            .threshold = static_cast<std::uint64_t>(p * 0x1p32 + 0.5),
            .kept = static_cast<float>(1.0 / (1.0 - p)),
            .seed = program_.seed,
            .epoch = epoch,
            .part = node.dropout ? node.dropout->part : 0,
            .ids = w.batch_rows->ids.data(),
            .counter = counter_of(w, node)};
}

Unitwise Fused::unitwise_of(const Node& node) const {
    return {node.kind, node.op->d_in, parameter(node.op->weight), parameter(node.op->bias)};
}

Norm Fused::norm_of(const Node& node) const {
    const Op& op = *node.op;
    return {op.kind, op.d_in, op.kind == Kind::group_norm ? op.groups : 1, static_cast<float>(op.eps),
            parameter(op.weight), parameter(op.bias), node.mean.data(), node.scale.data()};
}

void Fused::forward(StepThread& w, std::uint32_t epoch, double dropout) {
    const bool training = w.training;
    BatchRows& batch_rows = *w.batch_rows;
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
        Node& node = plan_.nodes[i];
        const Op& op = *node.op;
        const Value &in = plan_.values[node.in], &out = plan_.values[node.out];
        switch (node.kind) {
            case Kind::linear:
            case Kind::glu: {
                const bool raw = plan_.raw && i == 0;
                if (training && !raw) {
                    pieces(w, region_of(w, padded(op.d_in), PANEL), [&](Region p) {
                        kernels_.to_rows(in.x, {capacity_ * PANEL, op.d_in}, node.rows, p);
                    });
                }
                const Affine a = affine_of(node);
                if (node.kind == Kind::glu) {
                    blocks(w, region_of(w, a.d_out, PANEL), [&](Region b) { kernels_.forward(a, in.x, node.z, b); });
                    barrier_after_units(w);
                    pieces(w, region_of(w, op.d_out, PANEL), [&](Region p) {
                        kernels_.gate(op.function, op.d_out, node.z, out.x, p, training);
                    });
                    break;
                }
                const Node* next = i + 1 < plan_.nodes.size() && plan_.nodes[i + 1].with_next ? &plan_.nodes[i + 1] : nullptr;
                const Pointwise after = next ? pointwise_of(w, *next, epoch, dropout) : Pointwise{};
                blocks(w, region_of(w, a.d_out, PANEL), [&](Region b) {
                    kernels_.forward(a, in.x, out.x, b);
                    if (next) kernels_.pointwise(after, out.x, b);
                });
                if (next) ++i;
                break;
            }
            case Kind::activation:
                pieces(w, region_of(w, out.d, PANEL),
                       [&, after = pointwise_of(w, node, epoch, dropout)](Region p) {
                           kernels_.pointwise(after, out.x, p);
                       });
                break;
            MULTILAYER_UNITWISE(MULTILAYER_CASE)
                pieces(w, region_of(w, op.d_in, PANEL), [&](Region p) {
                    kernels_.unitwise(unitwise_of(node), in.x, out.x, p);
                });
                break;
            case Kind::enter:
                pieces(w, region_of(w, op.d_in, PANEL), [&](Region p) { kernels_.copy(op.d_in, in.x, out.x, p); });
                break;
            case Kind::leave:
                pieces(w, region_of(w, out.d, PANEL), [&](Region p) {
                    kernels_.add(out.d, plan_.values[node.other].x, out.x, p);
                });
                break;
            case Kind::columns: columns(w, node, batch_rows); break;
            case Kind::batch_norm:
                if (training) {
                    barrier(w);
                    some_units(w, share_of(op.d_in, PANEL, w.thread, w.threads), [&](std::size_t u0, std::size_t u1) {
                        kernels_.batch_statistics(in.x, op.d_in, w.batch, static_cast<float>(op.eps), node.mean.data(),
                                                  node.scale.data(), node.variance.data(), u0, u1);
                    });
                    barrier(w);
                }
                [[fallthrough]];
            default: {
                const Range panels = rows_of(w);
                pieces(w, {0, op.d_in, panels.first, panels.end}, [&, norm = norm_of(node)](Region p) {
                    kernels_.norm(norm, in.x, out.x, node.hat, node.inverse, p.p0, p.p1);
                });
            }
        }
        barrier_after_units(w);
    }
    if (!training) return;
    const LossTable table{.loss = &program_.loss,
                          .quantiles = quantiles_.data(),
                          .d = program_.d_out,
                          .targets = targets_,
                          .share = batch_rows.share.data(),
                          .classes = has_classes_ ? batch_rows.classes.data() : nullptr,
                          .y = batch_rows.y.data()};
    const Range panels = rows_of(w);
    pieces(w, {0, table.d, panels.first, panels.end}, [&](Region p) {
        kernels_.loss(table, plan_.values[plan_.last].x, batch_rows.loss.data(), p.p0, p.p1);
    });
    barrier_after_units(w);
}

void Fused::columns(const StepThread& w, Node& node, const BatchRows& batch_rows) {
    const Op& op = *node.op;
    Embedding e = embedding_at(node);
    const Value &in = plan_.values[node.in], &out = plan_.values[node.out];
    pieces(w, region_of(w, e.F, 1), [&](Region p) {
        kernels_.embed(e, in.x, out.x, out.d, node.inside, node.slopes, p.u0, p.u1, p.p0, p.p1);
    });
    const Range panels = rows_of(w);
    const std::size_t n = op.columns.categories.size();
    std::size_t unit = e.F * e.width;
    for (std::size_t c = 0; c < n; ++c) {
        const Category& category = op.columns.categories[c];
        const float* table = parameter(category.table);
        pieces(w, {unit, unit + category.width, panels.first, panels.end}, [&](Region p) {
            for (std::size_t b = p.p0 * PANEL; b < p.p1 * PANEL; ++b) {
                float* to = out.x + (b / PANEL * out.d + unit) * PANEL + b % PANEL;
                write_category(category, table, batch_rows.codes[b * n + c], to, PANEL);
            }
        });
        unit += category.width;
    }
}

Embedding Fused::embedding_at(const Node& node) const {
    const Columns& c = node.op->columns;
    Embedding e = embedding_of(program_, *node.op);
    e.frequency = parameter(c.frequency), e.phase = parameter(c.phase);
    e.weight = parameter(c.weight), e.bias = parameter(c.bias);
    e.edges = c.edges == NONE ? nullptr : buffers_[at(c.edges)].data();
    return e;
}

void Fused::fresh_statistics(const Node& node, float* mean, float* var) const {
    const auto m = static_cast<float>(node.op->momentum);
    for (std::size_t u = 0; u < node.op->d_in; ++u) {
        mean[u] = (1.0f - m) * mean[u] + m * node.mean[u];
        var[u] = (1.0f - m) * var[u] + m * node.variance[u];
    }
}

void Fused::backward(StepThread& w) {
    for (std::size_t i = plan_.nodes.size(); i-- > 0;) {
        Node& node = plan_.nodes[i];
        const Op& op = *node.op;
        const Value &in = plan_.values[node.in], &out = plan_.values[node.out];
        if (node.kind == Kind::leave) {
            if (node.learns) {
                float* around = plan_.values[node.other].g;
                pieces(w, region_of(w, out.d, PANEL), [&](Region p) { kernels_.copy(out.d, out.g, around, p); });
            }
            barrier_after_units(w);
            continue;
        }
        if (!node.passes && !node.learns) break;  // no node before this one has parameters
        const Pointwise here = node.kind == Kind::activation ? slopes_of(node) : Pointwise{};
        switch (node.kind) {
            case Kind::glu:
                pieces(w, region_of(w, op.d_out, PANEL), [&](Region p) {
                    kernels_.gate_backward(op.d_out, node.z, out.g, node.z, p);
                });
                barrier_after_units(w);
                [[fallthrough]];
            case Kind::linear: {
                if (!node.passes) break;
                const Affine a = affine_of(node);
                const float* delta = node.kind == Kind::glu ? node.z : out.g;
                Node* before = i > 0 && plan_.nodes[i - 1].with_later ? &plan_.nodes[i - 1] : nullptr;
                const Pointwise slopes = before ? slopes_of(*before) : Pointwise{};
                blocks(w, region_of(w, op.d_in, STRIP), [&](Region b) {
                    kernels_.backward(a, delta, in.g, b);
                    if (before) kernels_.pointwise_backward(slopes, in.g, b);
                });
                if (before) --i;
                break;
            }
            case Kind::activation:
                pieces(w, region_of(w, out.d, PANEL), [&](Region p) { kernels_.pointwise_backward(here, out.g, p); });
                break;
            MULTILAYER_UNITWISE(MULTILAYER_CASE)
                if (!node.passes) break;
                pieces(w, region_of(w, op.d_in, PANEL), [&](Region p) {
                    kernels_.unitwise_backward(unitwise_of(node), out.g, in.g, p);
                });
                break;
            case Kind::enter:
                if (!node.passes) break;
                pieces(w, region_of(w, op.d_in, PANEL), [&](Region p) { kernels_.add(op.d_in, out.g, in.g, p); });
                break;
            case Kind::columns: break;
            case Kind::batch_norm:
                if (node.passes) {
                    barrier(w);
                    some_units(w, share_of(op.d_in, PANEL, w.thread, w.threads), [&](std::size_t u0, std::size_t u1) {
                        kernels_.batch_backward(norm_of(node), out.g, node.hat, w.batch, in.g, u0, u1);
                    });
                    barrier(w);
                }
                break;
            default: {
                if (!node.passes) break;
                const Range panels = rows_of(w);
                pieces(w, {0, op.d_in, panels.first, panels.end}, [&, norm = norm_of(node)](Region p) {
                    kernels_.norm_backward(norm, out.g, node.hat, node.inverse, in.g, p.p0, p.p1);
                });
            }
        }
        barrier_after_units(w);
    }
}

Pointwise Fused::slopes_of(const Node& node) const {
    Pointwise p{};
    p.d = plan_.values[node.out].d;
    p.slope = node.slope, p.d_learned = node.d_learned, p.d_blend = node.d_blend;
    return p;
}

}  // namespace multilayer
