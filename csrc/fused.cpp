#include "fused.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "fused_plan.h"
#include "kernels.h"
#include "machine.h"
#include "pool.h"

namespace multilayer {
namespace {

constexpr std::size_t PREDICTED_AT_ONCE = 256;  // rows
constexpr std::size_t GRAIN = 6;  // rows of a matrix that a thread learns are a multiple of: the height of a tile

std::vector<const Kernels*> usable() {
    const std::vector<std::string> sets = instruction_sets();
    std::vector<const Kernels*> found;
#define ISA(name) &name::kernels,
    for (const Kernels* k : {MULTILAYER_ISAS}) {
#undef ISA
        const bool runs = std::all_of(k->needs, k->needs + k->n_needs, [&sets](const char* set) {
            return std::find(sets.begin(), sets.end(), set) != sets.end();
        });
        if (runs) found.push_back(k);
    }
    return found;
}

const Kernels& kernels_named(const std::string& name) {
    const std::vector<const Kernels*> found = usable();
    if (name.empty()) return *found.back();
    for (const Kernels* k : found) {
        if (k->name == name) return *k;
    }
    throw std::invalid_argument("this processor does not run the kernels '" + name + "'");
}

// The part of n things that is a thread's, cut at multiples of `step`.
struct Range {
    std::size_t first, end;
};

Range share_of(std::size_t n, std::size_t grain, std::size_t thread, std::size_t threads) {
    const std::size_t pieces = (n + grain - 1) / grain;
    const auto cut = [&](std::size_t t) { return std::min(n, pieces * t / threads * grain); };
    return {cut(thread), cut(thread + 1)};
}

class Fused final : public Core<float> {
public:
    Fused(const Program& program, std::size_t threads, const Kernels& kernels)
        : program_(program), k_(kernels), pool_(threads), plan_(program_) {
        tensors_ = lay_out(program_, total_);
        for (std::size_t i = 0; i < 2 + program_.optimizer.slots(); ++i) {
            if (i != 1) store_[i] = Floats(total_);
        }
        if (program_.average >= 0.0) store_[4] = Floats(total_);
        for (const std::size_t size : program_.buffers) buffers_.emplace_back(size);
        for (const double q : program_.loss.quantiles) quantiles_.push_back(static_cast<float>(q));
        std::size_t vectors = 0, squares = 0;
        for (const Tensor& t : tensors_) {
            vector_at_.push_back(vectors);
            if (!t.matrix) vectors += t.shape.size();
            squares_at_.push_back(squares);
            if (t.matrix) squares += t.shape.rows * LANE;
        }
        vectors_ = Floats(vectors);
        squares_ = Floats(squares);
    }

    std::size_t run(const Table<float>& table, const Order& order, const Schedule& schedule, double* loss, double* norm,
                    const std::atomic<bool>& stop, std::size_t& taken) override {
        reserve(std::min(order.batch, order.rows.size()), table);
        const std::size_t steps = order.steps();
        const bool clips = std::isfinite(program_.clip_norm);
        if (clips && gradients_.size() == 0) gradients_ = Floats(total_);
        std::size_t bad = FINISHED;
        taken = steps;
        std::atomic<std::size_t> halt{steps};  // the step before which all threads leave
        const std::size_t threads = threads_for(std::min(order.batch, order.rows.size()));
        updates_.resize(program_.parameters.size());
        pool_.run(threads, [&](std::size_t thread) {
            const FlushDenormals flushed;
            Work w{.thread = thread, .threads = threads, .training = true};
            for (std::size_t s = 0; s < steps; ++s) {
                if (thread == 0 && s > 0 && stop.load(std::memory_order_relaxed)) halt = s;
                const std::size_t first = s * order.batch, n = std::min(order.batch, order.rows.size() - first);
                begin(w, n, numbers_[s % 2]);
                gather(w, table, order.rows.subspan(first, n), order.ids.subspan(first, n));
                forward(w, order.epoch, schedule.dropout[s], true);
                backward(w);
                if (thread == 0) prepare_updates(schedule.rate[s], schedule.decay[s], step + 1, 1.0);
                meet(w);
                if (s >= halt.load(std::memory_order_relaxed)) break;
                learn(w, clips ? gradients_.data() : nullptr);
                if (clips) {
                    meet(w);
                    if (thread == 0) {
                        const double found = gradient_norm();
                        prepare_updates(schedule.rate[s], schedule.decay[s], step + 1, clip_scale(found));
                    }
                    meet(w);
                    apply_stored(w, gradients_.data());
                }
                meet(w);
                if (thread == 0) {
                    ++step;
                    loss[s] = total_loss(*w.numbers, n);
                    norm[s] = gradient_norm();
                    if (!std::isfinite(loss[s]) || !std::isfinite(norm[s])) bad = s, halt = s + 1;
                }
            }
        });
        if (const std::size_t end = halt.load(); end < steps) taken = end;
        return bad;
    }

    double gradients(const Table<float>& table, const Order& order, double dropout, std::span<float* const> out,
                     std::span<float* const> buffers) override {
        const std::size_t n = order.rows.size();
        reserve(n, table);
        if (gradients_.size() == 0) gradients_ = Floats(total_);
        const std::size_t threads = threads_for(n);
        updates_.resize(program_.parameters.size());
        pool_.run(threads, [&](std::size_t thread) {
            const FlushDenormals flushed;
            Work w{.thread = thread, .threads = threads, .training = true};
            begin(w, n, numbers_[0]);
            gather(w, table, order.rows, order.ids);
            forward(w, order.epoch, dropout, false);
            backward(w);
            meet(w);
            learn(w, gradients_.data());
        });
        for (std::size_t i = 0; i < tensors_.size(); ++i) unpack(tensors_[i].shape, stored_gradient(i), out[i]);
        for (std::size_t i = 0; i < buffers_.size(); ++i) std::copy_n(buffers_[i].data(), buffers_[i].size(), buffers[i]);
        for (const Node& node : plan_.nodes) {
            if (node.kind == Kind::batch_norm) fresh_statistics(node, buffers[at(node.op->mean)], buffers[at(node.op->var)]);
        }
        return total_loss(numbers_[0], n);
    }

    double apply(std::span<const float* const> given, std::span<const float* const> buffers, double rate,
                 double decay) override {
        if (gradients_.size() == 0) gradients_ = Floats(total_);
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            pack(tensors_[i].shape, given[i], stored_gradient(i));
            if (!tensors_[i].matrix) continue;
            k_.square_sums(stored_gradient(i), tensors_[i].shape, upwards(), squares_.data() + squares_at_[i]);
        }
        for (std::size_t i = 0; i < buffers_.size(); ++i) std::copy_n(buffers[i], buffers_[i].size(), buffers_[i].data());
        updates_.resize(program_.parameters.size());
        const double norm = gradient_norm();
        prepare_updates(rate, decay, step + 1, clip_scale(norm));
        const FlushDenormals flushed;
        const Work w{.thread = 0, .threads = 1, .training = true};
        apply_stored(w, gradients_.data());
        ++step;
        return norm;
    }

    void outputs(const Table<float>& table, std::span<const std::int64_t> rows, bool averaged, float* out) override {
        const std::size_t d = program_.d_out;
        reserve(std::min(std::max<std::size_t>(rows.size(), 1), PREDICTED_AT_ONCE), table);
        parameters_now_ = averaged && program_.average >= 0.0 ? store_[4].data() : store_[0].data();
        for (Node& node : plan_.nodes) {
            if (node.kind != Kind::batch_norm) continue;
            const Floats &mean = buffers_[at(node.op->mean)], &var = buffers_[at(node.op->var)];
            for (std::size_t u = 0; u < node.op->d_in; ++u) {
                node.mean[u] = mean.data()[u];
                node.scale[u] = 1.0f / std::sqrt(var.data()[u] + static_cast<float>(node.op->eps));
            }
        }
        const std::size_t at_once = capacity_ * LANE;
        const std::size_t threads = rows.size() > LANE ? threads_for(std::min(rows.size(), at_once)) : 1;
        pool_.run(threads, [&](std::size_t thread) {
            const FlushDenormals flushed;
            Work w{.thread = thread, .threads = threads, .training = false};
            for (std::size_t first = 0; first < rows.size(); first += at_once) {
                const std::size_t n = std::min(at_once, rows.size() - first);
                begin(w, n, numbers_[0]);
                gather(w, table, rows.subspan(first, n), rows.subspan(first, n));
                forward(w, 0, 0.0, false);
                const float* z = plan_.values[plan_.last].x;
                const Range panels = rows_of(w);
                for (std::size_t b = panels.first * LANE; b < std::min(n, panels.end * LANE); ++b) {
                    const float* line = z + b / LANE * d * LANE + b % LANE;
                    for (std::size_t c = 0; c < d; ++c) out[(first + b) * d + c] = line[c * LANE];
                }
                meet(w);  // before the next rows take their place
            }
        });
        parameters_now_ = store_[0].data();
    }

    void read(Group group, std::size_t place, float* out) const override {
        if (group == Group::buffers) {
            std::copy_n(buffers_[place].data(), buffers_[place].size(), out);
            return;
        }
        unpack(tensors_[place].shape, store_[static_cast<std::size_t>(group)].data() + tensors_[place].offset, out);
    }

    void write(Group group, std::size_t place, const float* values) override {
        if (group == Group::buffers) {
            std::copy_n(values, buffers_[place].size(), buffers_[place].data());
            return;
        }
        pack(tensors_[place].shape, values, store_[static_cast<std::size_t>(group)].data() + tensors_[place].offset);
    }

private:
    // What a step knows of its rows.
    struct Numbers {
        std::vector<std::uint32_t> ids;
        std::vector<float> share, y, loss;
        std::vector<std::int64_t> classes, codes;
    };

    // A thread's way through a step.
    struct Work {
        std::size_t thread, threads;
        std::size_t batch = 0, n_panels = 0;
        bool training;
        bool by_rows = true;     // whether rows are shared out, or units are
        Range panels = {0, 0};   // its own rows, where they are
        Numbers* numbers = nullptr;
    };

    static std::size_t at(int place) { return static_cast<std::size_t>(place); }

    // (rows, columns) from strips, and to them.
    static void unpack(const Strips& shape, const float* from, float* to) {
        each_piece(shape, [&](std::size_t strip, std::size_t plain, std::size_t n) { std::copy_n(from + strip, n, to + plain); });
    }

    static void pack(const Strips& shape, const float* from, float* to) {
        each_piece(shape, [&](std::size_t strip, std::size_t plain, std::size_t n) { std::copy_n(from + plain, n, to + strip); });
    }

    template <class F>
    static void each_piece(const Strips& shape, F f) {
        for (std::size_t r = 0; r < shape.rows; ++r) {
            for (std::size_t c = 0; c < shape.columns; c += STRIP) {
                f(shape.at(r, c), r * shape.columns + c, std::min(STRIP, shape.columns - c));
            }
        }
    }

    float* stored_gradient(std::size_t i) {
        return tensors_[i].matrix ? gradients_.data() + tensors_[i].offset : vectors_.data() + vector_at_[i];
    }

    const float* parameter(int place) const {
        return place == NONE ? nullptr : parameters_now_ + tensors_[at(place)].offset;
    }

    void meet(const Work& w) {
        if (w.threads > 1) pool_.meet(w.threads);
    }

    // Memory for so many rows of a table.
    void reserve(std::size_t rows, const Table<float>& table) {
        parameters_now_ = store_[0].data();
        targets_ = std::max<std::size_t>(1, table.targets);
        has_classes_ = table.classes != nullptr;
        reserve_panels(rows);
        for (Numbers& numbers : numbers_) {
            if (table.y) numbers.y.resize(std::max(numbers.y.size(), capacity_ * LANE * targets_));
        }
    }

    void reserve_panels(std::size_t rows) {
        const std::size_t panels = (rows + LANE - 1) / LANE;
        if (panels <= capacity_) return;
        memory_ = Floats(plan_.place(panels, program_, k_, nullptr));
        plan_.place(panels, program_, k_, memory_.data());
        capacity_ = panels;
        const std::size_t n = panels * LANE;
        const std::size_t categories = program_.ops.empty() ? 0 : program_.ops[0].columns.categories.size();
        for (Numbers& numbers : numbers_) {
            numbers.ids.resize(n), numbers.share.resize(n), numbers.loss.resize(n), numbers.classes.resize(n);
            numbers.codes.resize(n * categories);
        }
    }

    // Threads that a step of so many rows is worth: a meeting costs about what 50,000 multiply-adds do.
    std::size_t threads_for(std::size_t batch) const {
        std::size_t products = 0;
        for (const Op& op : program_.ops) {
            if (op.kind == Kind::linear) products += op.d_in * op.d_out;
            if (op.kind == Kind::glu) products += 2 * op.d_in * op.d_out;
            if (op.kind == Kind::columns) products += program_.numeric * op.columns.K * (op.columns.D + 8);
        }
        const std::size_t worth = std::max<std::size_t>(1, products * batch / 400'000);
        return std::min({pool_.threads(), worth});
    }

    void begin(Work& w, std::size_t batch, Numbers& numbers) {
        w.batch = batch;
        w.numbers = &numbers;
        w.n_panels = (batch + LANE - 1) / LANE;
        w.panels = share_of(w.n_panels, w.n_panels >= 2 * TOGETHER * w.threads ? TOGETHER : 1, w.thread, w.threads);
        // Rows are shared out where each thread has enough of them for its tiles; otherwise units are.
        w.by_rows = w.threads == 1 || w.n_panels >= TOGETHER * w.threads;
    }

    // A thread's part of a node: all units of its rows, or its units of all rows.
    Part part_of(const Work& w, std::size_t d, std::size_t grain) const {
        if (w.by_rows) return {0, d, w.panels.first, w.panels.end};
        const Range units = share_of(d, grain, w.thread, w.threads);
        return {units.first, units.end, 0, w.n_panels};
    }

    // Its rows, for work that takes all units of a row.
    Range rows_of(const Work& w) const {
        return w.by_rows ? w.panels : share_of(w.n_panels, 1, w.thread, w.threads);
    }

    // Work on units must be whole before another node reads all of them.
    void settle(const Work& w) {
        if (!w.by_rows) meet(w);
    }

    void gather(const Work& w, const Table<float>& table, std::span<const std::int64_t> rows,
                std::span<const std::int64_t> ids) {
        Numbers& numbers = *w.numbers;
        const std::size_t F = program_.numeric, n = rows.size();
        const std::size_t categories = numbers.codes.size() / std::max<std::size_t>(1, numbers.ids.size());
        double weights = static_cast<double>(n);
        if (w.training && table.weight) {
            weights = 0.0;
            for (const std::int64_t row : rows) weights += static_cast<double>(table.weight[row]);
        }
        const Range panels = rows_of(w);
        const Value& input = plan_.values[0];
        Node* first = plan_.raw ? &plan_.nodes.front() : nullptr;
        for (std::size_t p = panels.first; p < panels.end; ++p) {
            for (std::size_t l = 0; l < LANE; ++l) {
                // Past the last row stands the first again, with no share: every number is as finite as a real one.
                const std::size_t b = p * LANE + l, i = b < n ? b : 0;
                const auto row = static_cast<std::size_t>(rows[i]);
                const float* x = table.x + row * table.stride;
                if (first) {
                    const Strips strips{capacity_ * LANE, F};
                    for (std::size_t f = 0; f < F; f += STRIP) {
                        std::memcpy(first->rows + strips.at(b, f), x + f, std::min(STRIP, F - f) * sizeof(float));
                    }
                } else {
                    for (std::size_t f = 0; f < F; ++f) input.x[(p * F + f) * LANE + l] = x[f];
                }
                for (std::size_t c = 0; c < categories; ++c) numbers.codes[b * categories + c] = table.codes[row * categories + c];
                if (!w.training) continue;
                numbers.ids[b] = static_cast<std::uint32_t>(ids[i]);
                const double weight = table.weight ? static_cast<double>(table.weight[row]) : 1.0;
                numbers.share[b] = b < n ? static_cast<float>(weight / weights) : 0.0f;
                if (table.classes) numbers.classes[b] = table.classes[row];
                if (table.y) std::copy_n(table.y + row * table.targets, table.targets, numbers.y.data() + b * table.targets);
            }
            if (first) k_.to_panels(first->rows, {capacity_ * LANE, F}, input.x, {0, F, p, p + 1});
        }
        settle(w);
    }

    Affine affine_of(const Node& node) const {
        const Op& op = *node.op;
        const std::size_t rows = op.kind == Kind::glu ? 2 * op.d_out : op.d_out;
        return {parameter(op.weight), parameter(op.bias), static_cast<float>(op.factor), op.d_in, rows};
    }

    Pointwise pointwise_of(const Node& node, const Numbers& numbers, std::uint32_t epoch, double dropout,
                           bool training) const {
        const Op& op = *node.op;
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
                .ids = numbers.ids.data()};
    }

    Norm norm_of(const Node& node) const {
        const Op& op = *node.op;
        return {op.kind, op.d_in, op.kind == Kind::group_norm ? op.groups : 1, static_cast<float>(op.eps),
                parameter(op.weight), parameter(op.bias), node.mean.data(), node.scale.data()};
    }

    // f(block) for blocks of units and panels that stay in the first caches.
    template <class F>
    static void blocks(Part part, F f) {
        for (std::size_t p = part.p0; p < part.p1; p += TOGETHER) {
            for (std::size_t u = part.u0; u < part.u1; u += STRIP) {
                f(Part{u, std::min(u + STRIP, part.u1), p, std::min(p + TOGETHER, part.p1)});
            }
        }
    }

    void forward(Work& w, std::uint32_t epoch, double dropout, bool moves) {
        const bool training = w.training;
        Numbers& numbers = *w.numbers;
        for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
            Node& node = plan_.nodes[i];
            const Op& op = *node.op;
            const Value &in = plan_.values[node.in], &out = plan_.values[node.out];
            switch (node.kind) {
                case Kind::linear:
                case Kind::glu: {
                    const bool raw = plan_.raw && i == 0;
                    if (training && !raw) {
                        k_.to_rows(in.x, {capacity_ * LANE, op.d_in}, node.rows, part_of(w, whole_lines(op.d_in), LANE));
                    }
                    const Affine a = affine_of(node);
                    if (node.kind == Kind::glu) {
                        blocks(part_of(w, a.d_out, LANE), [&](Part b) { k_.forward(a, in.x, node.z, b); });
                        settle(w);
                        k_.gate(op.function, op.d_out, node.z, out.x, part_of(w, op.d_out, LANE), training);
                        break;
                    }
                    const Node* next = i + 1 < plan_.nodes.size() && plan_.nodes[i + 1].with_next ? &plan_.nodes[i + 1] : nullptr;
                    const Pointwise after = next ? pointwise_of(*next, numbers, epoch, dropout, training) : Pointwise{};
                    blocks(part_of(w, a.d_out, LANE), [&](Part b) {
                        k_.forward(a, in.x, out.x, b);
                        if (next) k_.pointwise(after, out.x, b);
                    });
                    if (next) ++i;
                    break;
                }
                case Kind::activation:
                    k_.pointwise(pointwise_of(node, numbers, epoch, dropout, training), out.x, part_of(w, out.d, LANE));
                    break;
                case Kind::scale: k_.scale(op.d_in, parameter(op.weight), in.x, out.x, part_of(w, op.d_in, LANE)); break;
                case Kind::enter: k_.copy(op.d_in, in.x, out.x, part_of(w, op.d_in, LANE)); break;
                case Kind::leave:
                    k_.add(out.d, plan_.values[node.other].x, out.x, part_of(w, out.d, LANE));
                    break;
                case Kind::columns: columns(w, node, numbers); break;
                case Kind::batch_norm:
                    if (training) {
                        meet(w);
                        const Range units = share_of(op.d_in, LANE, w.thread, w.threads);
                        k_.batch_statistics(in.x, op.d_in, w.batch, static_cast<float>(op.eps), node.mean.data(),
                                            node.scale.data(), node.variance.data(), units.first, units.end);
                        meet(w);
                        if (moves && w.thread == 0) {
                            fresh_statistics(node, buffers_[at(op.mean)].data(), buffers_[at(op.var)].data());
                        }
                    }
                    [[fallthrough]];
                default: {
                    const Range panels = rows_of(w);
                    k_.norm(norm_of(node), in.x, out.x, node.hat, node.inverse, panels.first, panels.end);
                }
            }
            settle(w);
        }
        if (!training) return;
        const LossTable table{.loss = &program_.loss,
                              .quantiles = quantiles_.data(),
                              .d = program_.d_out,
                              .targets = targets_,
                              .share = numbers.share.data(),
                              .classes = has_classes_ ? numbers.classes.data() : nullptr,
                              .y = numbers.y.data()};
        const Range panels = rows_of(w);
        k_.loss(table, plan_.values[plan_.last].x, numbers.loss.data(), panels.first, panels.end);
        settle(w);
    }

    void columns(const Work& w, Node& node, const Numbers& numbers) {
        const Op& op = *node.op;
        Embedding e = embedding_at(node);
        const Value &in = plan_.values[node.in], &out = plan_.values[node.out];
        const Part part = part_of(w, e.F, 1);
        k_.embed(e, in.x, out.x, out.d, node.inside, node.slopes, part.u0, part.u1, part.p0, part.p1);
        const Range panels = rows_of(w);
        const std::size_t n = op.columns.categories.size();
        std::size_t unit = e.F * e.width;
        for (std::size_t c = 0; c < n; ++c) {
            const Category& category = op.columns.categories[c];
            const float* table = parameter(category.table);
            for (std::size_t b = panels.first * LANE; b < panels.end * LANE; ++b) {
                const std::int64_t code = numbers.codes[b * n + c];
                float* to = out.x + (b / LANE * out.d + unit) * LANE + b % LANE;
                for (std::size_t j = 0; j < category.width; ++j) {
                    if (table) {
                        to[j * LANE] = table[static_cast<std::size_t>(code) * category.width + j];
                    } else if (category.values == 2) {
                        to[j * LANE] = code == 0 ? 0.0f : code == 1 ? -1.0f : 1.0f;
                    } else {
                        to[j * LANE] = code == static_cast<std::int64_t>(j) + 1 ? 1.0f : 0.0f;
                    }
                }
            }
            unit += category.width;
        }
    }

    Embedding embedding_at(const Node& node) const {
        const Columns& c = node.op->columns;
        Embedding e = embedding_of(program_, *node.op);
        e.frequency = parameter(c.frequency), e.phase = parameter(c.phase);
        e.weight = parameter(c.weight), e.bias = parameter(c.bias);
        e.edges = c.edges == NONE ? nullptr : buffers_[at(c.edges)].data();
        return e;
    }

    // Running statistics as a step leaves them: the mean, and the variance without bias.
    void fresh_statistics(const Node& node, float* mean, float* var) const {
        const auto m = static_cast<float>(node.op->momentum);
        for (std::size_t u = 0; u < node.op->d_in; ++u) {
            mean[u] = (1.0f - m) * mean[u] + m * node.mean[u];
            var[u] = (1.0f - m) * var[u] + m * node.variance[u];
        }
    }

    void backward(Work& w) {
        for (std::size_t i = plan_.nodes.size(); i-- > 0;) {
            Node& node = plan_.nodes[i];
            const Op& op = *node.op;
            const Value &in = plan_.values[node.in], &out = plan_.values[node.out];
            if (node.kind == Kind::leave) {
                if (node.learns) k_.copy(out.d, out.g, plan_.values[node.other].g, part_of(w, out.d, LANE));
                settle(w);
                continue;
            }
            if (!node.passes && !node.learns) break;  // nothing from here down learns
            const Pointwise here = node.kind == Kind::activation ? slopes_of(node) : Pointwise{};
            switch (node.kind) {
                case Kind::glu:
                    k_.gate_backward(op.d_out, node.z, out.g, node.z, part_of(w, op.d_out, LANE));
                    settle(w);
                    [[fallthrough]];
                case Kind::linear: {
                    if (!node.passes) break;
                    const Affine a = affine_of(node);
                    const float* delta = node.kind == Kind::glu ? node.z : out.g;
                    Node* before = i > 0 && plan_.nodes[i - 1].with_later ? &plan_.nodes[i - 1] : nullptr;
                    const Pointwise slopes = before ? slopes_of(*before) : Pointwise{};
                    blocks(part_of(w, op.d_in, STRIP), [&](Part b) {
                        k_.backward(a, delta, in.g, b, false);
                        if (before) k_.pointwise_backward(slopes, in.g, b);
                    });
                    if (before) --i;
                    break;
                }
                case Kind::activation: k_.pointwise_backward(here, out.g, part_of(w, out.d, LANE)); break;
                case Kind::scale:
                    if (node.passes) k_.scale(op.d_in, parameter(op.weight), out.g, in.g, part_of(w, op.d_in, LANE));
                    break;
                case Kind::enter:
                    if (node.passes) k_.add(op.d_in, out.g, in.g, part_of(w, op.d_in, LANE));
                    break;
                case Kind::columns: break;
                case Kind::batch_norm:
                    if (node.passes) {
                        meet(w);
                        const Range units = share_of(op.d_in, LANE, w.thread, w.threads);
                        k_.batch_backward(norm_of(node), out.g, node.hat, w.batch, in.g, units.first, units.end);
                        meet(w);
                    }
                    break;
                default: {
                    if (!node.passes) break;
                    const Range panels = rows_of(w);
                    k_.norm_backward(norm_of(node), out.g, node.hat, node.inverse, in.g, panels.first, panels.end);
                }
            }
            settle(w);
        }
    }

    Pointwise slopes_of(const Node& node) const {
        Pointwise p{};
        p.d = plan_.values[node.out].d;
        p.slope = node.slope, p.d_learned = node.d_learned, p.d_blend = node.d_blend;
        return p;
    }

    // ---- what parameters learn ----

    Place place(std::size_t parameter, std::size_t offset = 0) {
        const std::size_t first = tensors_[parameter].offset + offset;
        const auto in = [&](std::size_t i) { return store_[i].size() ? store_[i].data() + first : nullptr; };
        return {in(0), in(2), in(3), in(4)};
    }

    void prepare_updates(double rate, double decay, std::uint64_t t, double scale) {
        const Optimizer& o = program_.optimizer;
        const auto steps = static_cast<double>(t);
        for (std::size_t i = 0; i < program_.parameters.size(); ++i) {
            const Parameter& p = program_.parameters[i];
            double step_rate = rate * p.rate_factor;
            const double shrink = 1.0 - step_rate * decay * p.decay_factor;
            double correction = 1.0;
            if (o.kind == OptimizerKind::adam) {
                step_rate /= 1.0 - std::pow(o.beta1, steps);
                correction = 1.0 / std::sqrt(1.0 - std::pow(o.beta2, steps));
            }
            updates_[i] = {.kind = o.kind,
                           .rate = static_cast<float>(step_rate),
                           .shrink = static_cast<float>(shrink),
                           .l2 = static_cast<float>(program_.l2 * p.decay_factor),
                           .clip = static_cast<float>(program_.clip_value),
                           .scale = static_cast<float>(scale),
                           .momentum = static_cast<float>(o.kind == OptimizerKind::adam ? o.beta1 : o.momentum),
                           .beta2 = static_cast<float>(o.beta2),
                           .correction = static_cast<float>(correction),
                           .eps = static_cast<float>(o.eps),
                           .average = static_cast<float>(program_.average)};
        }
    }

    double clip_scale(double norm) const { return norm > program_.clip_norm ? program_.clip_norm / norm : 1.0; }

    // Steps walk through the parameters up and down in turn.
    bool upwards() const { return step % 2 == 1; }

    // Every gradient of this thread's units; applied at once, or kept where `stored` is given.
    void learn(const Work& w, float* stored) {
        if (shared_learned() && w.thread == 0) clear_shared();
        if (shared_learned()) meet(w);
        for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
            Node& node = plan_.nodes[upwards() ? plan_.nodes.size() - 1 - i : i];
            if (!node.learns || node.kind == Kind::leave) continue;
            const Op& op = *node.op;
            const Value &in = plan_.values[node.in], &out = plan_.values[node.out];
            const std::size_t panels = w.n_panels;
            switch (node.kind) {
                case Kind::linear:
                case Kind::glu: {
                    const std::size_t rows = node.kind == Kind::glu ? 2 * op.d_out : op.d_out;
                    const float* delta = node.kind == Kind::glu ? node.z : out.g;
                    const Range units = share_of(rows, GRAIN, w.thread, w.threads);
                    const std::size_t offset = tensors_[at(op.weight)].offset;
                    const WeightGradient gradient{.delta = delta,
                                                  .rows = node.rows,
                                                  .capacity = capacity_ * LANE,
                                                  .batch = w.batch,
                                                  .factor = static_cast<float>(op.factor),
                                                  .d_in = op.d_in,
                                                  .d_out = rows,
                                                  .place = place(at(op.weight)),
                                                  .gradient = stored ? stored + offset : nullptr,
                                                  .update = stored ? nullptr : &updates_[at(op.weight)],
                                                  .squares = squares_.data() + squares_at_[at(op.weight)],
                                                  .upwards = upwards()};
                    k_.weight_gradient(gradient, units.first, units.end);
                    if (op.bias != NONE) sum(w, op.bias, delta, nullptr, rows, units, stored);
                    break;
                }
                case Kind::activation: {
                    const Range units = share_of(out.d, LANE, w.thread, w.threads);
                    if (op.blend != NONE) sum(w, op.blend, node.d_blend, nullptr, out.d, units, stored);
                    if (op.learned == NONE) break;
                    if (program_.parameters[at(op.learned)].size == out.d && !is_shared(op.learned)) {
                        sum(w, op.learned, node.d_learned, nullptr, out.d, units, stored);
                    } else if (w.thread == 0) {
                        add_shared(op, node, out.d, panels, stored);
                    }
                    break;
                }
                case Kind::scale: {
                    const Range units = share_of(op.d_in, LANE, w.thread, w.threads);
                    sum(w, op.weight, out.g, in.x, op.d_in, units, stored);
                    break;
                }
                case Kind::columns: learn_columns(w, node, stored); break;
                default: {
                    const Range units = share_of(op.d_in, LANE, w.thread, w.threads);
                    sum(w, op.weight, out.g, node.hat, op.d_in, units, stored);
                    if (op.bias != NONE) sum(w, op.bias, out.g, nullptr, op.d_in, units, stored);
                }
            }
        }
    }

    float* gradient_of(int parameter) { return vectors_.data() + vector_at_[at(parameter)]; }

    void sum(const Work& w, int parameter, const float* x, const float* y, std::size_t d, Range units, bool stored) {
        float* g = gradient_of(parameter);
        k_.sum_rows(x, y, d, w.n_panels, g, units.first, units.end);
        if (!stored) update_vector(parameter, units);
    }

    void update_vector(int parameter, Range units) {
        if (units.first >= units.end) return;
        k_.update(updates_[at(parameter)], units.end - units.first, gradient_of(parameter) + units.first,
                  place(at(parameter), units.first));
    }

    // One number for a layer, or for several layers of the network: the sum of its units, in their order.
    bool is_shared(int parameter) const {
        return std::count_if(program_.ops.begin(), program_.ops.end(),
                             [parameter](const Op& op) { return op.learned == parameter; }) > 1;
    }

    bool shared_learned() const {
        return std::any_of(program_.ops.begin(), program_.ops.end(), [this](const Op& op) {
            return op.learned != NONE && (program_.parameters[at(op.learned)].size == 1 || is_shared(op.learned));
        });
    }

    void clear_shared() {
        for (const Op& op : program_.ops) {
            if (op.learned != NONE) gradient_of(op.learned)[0] = 0.0f;
        }
        for (const Op& op : program_.ops) {
            if (op.learned != NONE) left_[op.learned] = 0;
        }
        for (const Op& op : program_.ops) {
            if (op.learned != NONE) ++left_[op.learned];
        }
    }

    void add_shared(const Op& op, const Node& node, std::size_t d, std::size_t panels, bool stored) {
        units_.resize(d);
        k_.sum_rows(node.d_learned, nullptr, d, panels, units_.data(), 0, d);
        float* g = gradient_of(op.learned);
        float sum = 0.0f;
        for (const float part : units_) sum += part;
        g[0] += sum;
        if (--left_[op.learned] == 0 && !stored) update_vector(op.learned, {0, 1});
    }

    void learn_columns(const Work& w, Node& node, bool stored) {
        const Op& op = *node.op;
        const Columns& c = op.columns;
        const Value &in = plan_.values[node.in], &out = plan_.values[node.out];
        const Embedding e = embedding_at(node);
        if (c.weight != NONE) {
            const Range f = share_of(e.F, 1, w.thread, w.threads);
            const auto gradient = [&](int p) { return p == NONE ? nullptr : gradient_of(p); };
            k_.embed_gradient(e, in.x, out.g, out.d, node.inside, node.slopes, w.n_panels, gradient(c.frequency),
                              gradient(c.phase), gradient(c.weight), gradient(c.bias), f.first, f.end);
            if (!stored) {
                for (const int p : {c.frequency, c.phase}) {
                    if (p != NONE) update_vector(p, {f.first * e.n, f.end * e.n});
                }
                update_vector(c.weight, {f.first * e.K * e.D, f.end * e.K * e.D});
                update_vector(c.bias, {f.first * e.D, f.end * e.D});
            }
        }
        // A table for each thread in turn; rows are added in the order of the batch.
        std::size_t unit = e.F * e.width, turn = 0;
        for (std::size_t i = 0; i < c.categories.size(); unit += c.categories[i++].width) {
            const Category& category = c.categories[i];
            if (category.table == NONE || turn++ % w.threads != w.thread) continue;
            float* g = gradient_of(category.table);
            const std::size_t size = program_.parameters[at(category.table)].size;
            std::fill_n(g, size, 0.0f);
            const std::vector<std::int64_t>& codes = w.numbers->codes;
            for (std::size_t b = 0; b < w.batch; ++b) {
                const auto code = static_cast<std::size_t>(codes[b * c.categories.size() + i]);
                const float* from = out.g + (b / LANE * out.d + unit) * LANE + b % LANE;
                for (std::size_t j = 0; j < category.width; ++j) g[code * category.width + j] += from[j * LANE];
            }
            if (!stored) update_vector(category.table, {0, size});
        }
    }

    void apply_stored(const Work& w, const float* stored) {
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            const Tensor& t = tensors_[i];
            if (t.matrix) {
                const Range part = share_of(t.shape.size(), LANE, w.thread, w.threads);
                if (part.first == part.end) continue;
                k_.update(updates_[i], part.end - part.first, stored + t.offset + part.first, place(i, part.first));
            } else {
                update_vector(static_cast<int>(i), share_of(t.shape.columns, LANE, w.thread, w.threads));
            }
        }
    }

    double gradient_norm() const {
        double sum = 0.0;
        for (std::size_t i = 0; i < squares_.size(); i += LANE) sum += static_cast<double>(squares_.data()[i]);
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            if (tensors_[i].matrix) continue;
            const float* g = vectors_.data() + vector_at_[i];
            for (std::size_t j = 0; j < tensors_[i].shape.columns; ++j) sum += static_cast<double>(g[j]) * static_cast<double>(g[j]);
        }
        return std::sqrt(sum);
    }

    static double total_loss(const Numbers& numbers, std::size_t n) {
        double sum = 0.0;
        for (std::size_t b = 0; b < n; ++b) {
            sum += static_cast<double>(numbers.loss[b]) * static_cast<double>(numbers.share[b]);
        }
        return sum;
    }

    const Program program_;
    const Kernels& k_;
    Pool pool_;
    Plan plan_;
    std::vector<Tensor> tensors_;
    std::size_t total_ = 0;
    Floats store_[5];  // by Group: parameters, (buffers), slot0, slot1, averages
    std::vector<Floats> buffers_;
    std::vector<float> quantiles_;
    const float* parameters_now_ = nullptr;

    Floats memory_;             // what a step writes
    std::size_t capacity_ = 0;  // panels
    Numbers numbers_[2];        // of this step and the one before, whose loss is still read
    bool has_classes_ = false;
    std::size_t targets_ = 0;

    std::vector<std::size_t> vector_at_, squares_at_;
    Floats vectors_;    // gradients of all but matrices
    Floats gradients_;  // of matrices, where they are asked for
    Floats squares_;    // Σ g² of each row of each matrix, a line apart
    std::vector<Update> updates_;
    std::vector<float> units_;
    std::vector<int> left_ = std::vector<int>(program_.parameters.size());
};

}  // namespace

std::unique_ptr<Core<float>> make_fused(const Program& program, std::size_t threads, const std::string& isa) {
    return std::make_unique<Fused>(program, threads, kernels_named(isa));
}

std::vector<std::string> fused_kernels() {
    std::vector<std::string> names;
    for (const Kernels* k : usable()) names.emplace_back(k->name);
    return names;
}

std::size_t fused_bytes(const Program& program, std::size_t batch) {
    Plan plan(program);
    std::size_t total = 0;
    lay_out(program, total);
    const std::size_t arrays = 1 + program.optimizer.slots() + (program.average >= 0.0 ? 1 : 0);
    const std::size_t panels = (batch + LANE - 1) / LANE;
    return sizeof(float) * (arrays * total + plan.place(panels, program, *usable().front(), nullptr));
}

}  // namespace multilayer
