// The fused core: runs of steps, outputs, and state.
#include "fused/fused.h"

#include <chrono>
#include <cmath>

#include "fused/core.h"

namespace multilayer {
namespace {

constexpr std::size_t LEAST_ROWS = 128;         // minimum capacity in rows: outputs processes this many rows at once
constexpr std::size_t STREAMED = 32;  // cost in multiply-adds of a value that is read, transformed and written once
constexpr std::size_t WORTH = 50'000;           // forward multiply-adds for which another thread pays off
constexpr std::size_t TELLING = 8;              // minimum number of steps for a timing
constexpr std::size_t TRIAL = 2 * TELLING;      // steps for which another number of threads is tried
constexpr std::size_t STORED = 500'000'000;     // multiply-adds of gradients above which gradients are stored
constexpr std::size_t MANY_ROWS = 1024, SOME_ROWS = 256;  // storing is cheap for MANY_ROWS; for SOME_ROWS it needs 5 × STORED

}  // namespace

Fused::Fused(const Program& program, std::size_t threads, const Kernels& kernels, bool all_threads)
: program_(program), kernels_(kernels), all_threads_(all_threads), pool_(threads), plan_(program_) {
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
        if (t.matrix) squares += t.shape.rows * PANEL;
    }
    vectors_ = Floats(vectors);
    squares_ = Floats(squares);
    updates_.resize(program_.parameters.size());
    few_linear_weights_ = few_weights_ = products() <= LIGHT;
    for (const Op& op : program_.ops) {
        if (op.learned != NONE) units_.resize(std::max(units_.size(), op.d_out));
        const bool plain = op.kind == Kind::activation && op.learned == NONE && op.blend == NONE;
        few_linear_weights_ = few_linear_weights_ && (op.kind == Kind::linear || op.kind == Kind::dropout || plain);
    }
}

std::size_t Fused::run(const Table<float>& table, const Order& order, const Schedule& schedule, double* loss, double* norm,
                       const StopRequested& stop) {
    const std::size_t steps = order.steps(), batch = std::min(order.batch, order.rows.size());
    reserve(batch, table);
    const bool stored = stores(batch);
    if (stored && gradients_.size() == 0) gradients_ = Floats(total_);
    reserve_halves(batch);
    if (program_.statistics_every > 0) {  // threads at a barrier must not run out of memory
        const std::size_t recorded = (step + steps) / program_.statistics_every - step / program_.statistics_every;
        statistics.reserve(statistics.size() + recorded * 2 * tensors_.size());
    }
    const std::size_t most = threads_for(batch);
    reserve_counts(counts_units ? most : 0);
    std::size_t bad = FINISHED;
    StopPoll poll(stop);
    stopping_ = false;
    // The calling thread writes both values before a barrier, and all threads read them after it. They are not written
    // again before all threads have read them: `halt` is compared with the number of a step, and after `undone` there
    // is another barrier.
    std::atomic<std::size_t> halt{steps};  // the first step whose update is not made
    std::atomic<bool> undone = false;      // whether the gradients of the step were discarded
    const bool tuned = !all_threads_ && products() * batch <= TUNED_PRODUCTS;
    const auto some_steps = [&](std::size_t from, std::size_t to, std::size_t thread, std::size_t threads) {
        const FlushDenormals flushed;
        StepThread w{.thread = thread, .threads = threads, .training = true};
        if (thread == 0) w.poll = poll_within(batch, poll);
        for (std::size_t s = from; s < to; ++s) {
            if (thread == 0 && poll.requested()) stopping_ = true;
            const std::size_t first = s * order.batch, n = std::min(order.batch, order.rows.size() - first);
            begin_step(w, n, batch_rows_[s % 2]);
            gather(w, table, order.rows.subspan(first, n), order.ids.subspan(first, n));
            forward(w, order.epoch, schedule.dropout[s]);
            backward(w);
            if (thread == 0) {
                prepare_updates(schedule.rate[s], schedule.decay[s], step + 1, 1.0);
                if (stopping_) halt = s;
            }
            barrier(w);
            if (s >= halt.load(std::memory_order_relaxed)) break;
            gradients_and_updates(w, stored ? gradients_.data() : nullptr);
            if (stored) {
                if (thread == 0 && stopping_) undone = true;
                barrier(w);
                if (undone.load(std::memory_order_relaxed)) {
                    if (thread == 0) halt = s;
                    break;
                }
                if (thread == 0) {
                    const double found = gradient_norm();
                    prepare_updates(schedule.rate[s], schedule.decay[s], step + 1, clip_scale(found));
                }
                barrier(w);
                apply_stored(w, gradients_.data());
            }
            barrier(w);
            if (thread == 0) {
                ++step;
                for (const Node& node : plan_.nodes) {
                    if (node.kind != Kind::batch_norm) continue;
                    fresh_statistics(node, buffers_[at(node.op->mean)].data(), buffers_[at(node.op->var)].data());
                }
                loss[s] = total_loss(*w.batch_rows, n);
                norm[s] = gradient_norm();
                if (program_.records_statistics(step)) record_statistics();
                if (!std::isfinite(loss[s]) || !std::isfinite(norm[s])) bad = s, halt = s + 1;
            }
        }
    };
    for (std::size_t from = 0; from < halt;) {
        const std::size_t threads = tuned ? tuner_.next(most, order.batch) : most;
        const std::size_t to = tuned && tuner_.trying() ? std::min(from + TRIAL, steps) : steps;
        const auto start = std::chrono::steady_clock::now();
        pool_.run(threads, [&](std::size_t thread) { some_steps(from, to, thread, threads); });
        if (tuned && halt >= to && to - from >= TELLING) {
            const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
            tuner_.record(seconds.count() / static_cast<double>(to - from));
        }
        from = to;
    }
    sum_counts();
    return bad;
}

void Fused::reserve_counts(std::size_t threads) {
    counts_.assign(threads, std::vector<std::int64_t>(plan_.counts));
    unit_counts.assign(threads ? plan_.counts : 0, 0);
}

void Fused::sum_counts() {
    for (const std::vector<std::int64_t>& counts : counts_) {
        for (std::size_t i = 0; i < counts.size(); ++i) unit_counts[i] += counts[i];
    }
    counts_.clear();
}

double Fused::gradients(const Table<float>& table, const Order& order, double dropout, std::span<float* const> out,
                        std::span<float* const> buffers, const StopRequested& stop) {
    const FlushDenormals here;  // also for running statistics: they must have the bits of a step
    const std::size_t n = order.rows.size();
    reserve(n, table);
    const GradientMemory stored(*this);
    reserve_halves(n);
    const std::size_t threads = threads_for(n);
    StopPoll poll(stop);
    stopping_ = false;
    pool_.run(threads, [&](std::size_t thread) {
        const FlushDenormals flushed;
        StepThread w{.thread = thread, .threads = threads, .training = true};
        if (thread == 0) w.poll = poll_within(n, poll);
        begin_step(w, n, batch_rows_[0]);
        gather(w, table, order.rows, order.ids);
        forward(w, order.epoch, dropout);
        backward(w);
        barrier(w);
        gradients_and_updates(w, gradients_.data());
    });
    for (std::size_t i = 0; i < tensors_.size(); ++i) unpack(tensors_[i].shape, stored_gradient(i), out[i]);
    for (std::size_t i = 0; i < buffers_.size(); ++i) std::copy_n(buffers_[i].data(), buffers_[i].size(), buffers[i]);
    for (const Node& node : plan_.nodes) {
        if (node.kind == Kind::batch_norm) fresh_statistics(node, buffers[at(node.op->mean)], buffers[at(node.op->var)]);
    }
    return n ? total_loss(batch_rows_[0], n) : std::nan("");  // the mean over no rows
}

double Fused::apply(std::span<const float* const> given, std::span<const float* const> buffers, double rate,
                    double decay) {
    const FlushDenormals flushed;
    const GradientMemory stored(*this);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        pack(tensors_[i].shape, given[i], stored_gradient(i));
        if (!tensors_[i].matrix) continue;
        kernels_.square_sums(stored_gradient(i), tensors_[i].shape, upwards(), squares_.data() + squares_at_[i]);
    }
    for (std::size_t i = 0; i < buffers_.size(); ++i) std::copy_n(buffers[i], buffers_[i].size(), buffers_[i].data());
    const double norm = gradient_norm();
    prepare_updates(rate, decay, step + 1, clip_scale(norm));
    const StepThread w{.thread = 0, .threads = 1, .training = true};
    apply_stored(w, gradients_.data());
    ++step;
    return norm;
}

void Fused::outputs(const Table<float>& table, std::span<const std::int64_t> rows, bool averaged, float* out,
                    const StopRequested& stop) {
    const std::size_t d = program_.d_out;
    reserve(1, table);
    parameters_now_ = averaged && program_.average >= 0.0 ? store_[4].data() : store_[0].data();
    for (Node& node : plan_.nodes) {
        if (node.kind != Kind::batch_norm) continue;
        const Floats &mean = buffers_[at(node.op->mean)], &var = buffers_[at(node.op->var)];
        for (std::size_t u = 0; u < node.op->d_in; ++u) {
            node.mean[u] = mean.data()[u];
            node.scale[u] = 1.0f / std::sqrt(var.data()[u] + static_cast<float>(node.op->eps));
        }
    }
    // Each thread processes its rows in its own panels, without barriers.
    const std::size_t worth = std::min({threads_for(rows.size()), capacity_, (rows.size() + PANEL - 1) / PANEL});
    const std::size_t threads = std::max<std::size_t>(1, worth);
    StopPoll poll(stop);
    stopping_ = false;
    pool_.run(threads, [&](std::size_t thread) {
        const FlushDenormals flushed;
        const Range panels = share_of(capacity_, 1, thread, threads), mine = share_of(rows.size(), PANEL, thread, threads);
        const std::size_t at_once = std::min(panels.end - panels.first, PIECE) * PANEL;
        StepThread w{.thread = 0, .threads = 1, .training = false, .poll = thread == 0 ? &poll : nullptr};
        w.batch_rows = &batch_rows_[0];
        w.first_row = panels.first * PANEL;
        for (std::size_t first = mine.first; first < mine.end && !stopped(w); first += at_once) {
            const std::size_t n = std::min(at_once, mine.end - first);
            w.panels = {panels.first, panels.first + (n + PANEL - 1) / PANEL};
            gather(w, table, rows.subspan(first, n), rows.subspan(first, n));
            forward(w, 0, 0.0);
            const float* z = plan_.values[plan_.last].x + panels.first * d * PANEL;
            for (std::size_t b = 0; b < n; ++b) {
                const float* line = z + b / PANEL * d * PANEL + b % PANEL;
                for (std::size_t c = 0; c < d; ++c) out[(first + b) * d + c] = line[c * PANEL];
            }
        }
    });
    parameters_now_ = store_[0].data();
}

void Fused::read(Group group, std::size_t place, float* out) const {
    if (group == Group::buffers) {
        std::copy_n(buffers_[place].data(), buffers_[place].size(), out);
        return;
    }
    unpack(tensors_[place].shape, store_[static_cast<std::size_t>(group)].data() + tensors_[place].offset, out);
}

void Fused::write(Group group, std::size_t place, const float* values) {
    if (group == Group::buffers) {
        std::copy_n(values, buffers_[place].size(), buffers_[place].data());
        return;
    }
    pack(tensors_[place].shape, values, store_[static_cast<std::size_t>(group)].data() + tensors_[place].offset);
}

void Fused::reserve(std::size_t rows, const Table<float>& table) {
    parameters_now_ = store_[0].data();
    targets_ = std::max<std::size_t>(1, table.targets);
    has_classes_ = table.classes != nullptr;
    reserve_panels(rows);
    const std::size_t n = capacity_ * PANEL;
    for (BatchRows& batch_rows : batch_rows_) {
        if (table.y) batch_rows.y.resize(std::max(batch_rows.y.size(), n * targets_));
        if (table.classes) batch_rows.classes.resize(n);
    }
}

void Fused::reserve_panels(std::size_t rows) {
    const std::size_t panels = (std::max(rows, LEAST_ROWS) + PANEL - 1) / PANEL;
    if (panels <= capacity_) return;
    capacity_ = 0;  // until all allocations succeed
    memory_ = Floats();
    memory_ = Floats(plan_.place(panels, program_, kernels_, nullptr));
    plan_.place(panels, program_, kernels_, memory_.data());
    const std::size_t n = panels * PANEL;
    for (BatchRows& batch_rows : batch_rows_) {
        batch_rows.ids.resize(n), batch_rows.share.resize(n), batch_rows.loss.resize(n);
        batch_rows.codes.resize(n * categories());
    }
    capacity_ = panels;
}

void Fused::reserve_halves(std::size_t batch) {
    if (!few_linear_weights_ || batch < HALVED) return;  // the last batch may be smaller than the others
    for (Floats& half : halves_) {
        if (half.size() == 0) half = Floats(total_);
    }
}

std::size_t Fused::products() const {
    std::size_t sum = 0;
    for (const Op& op : program_.ops) sum += multiply_adds(op, program_.numeric);
    return sum;
}

std::size_t Fused::threads_for(std::size_t batch) {
    if (all_threads_) return pool_.ready(pool_.threads());
    std::size_t pieces = (batch + PANEL - 1) / PANEL;  // parts into which the work can be split, by rows or by units
    for (const Op& op : program_.ops) pieces = std::max(pieces, op.d_out / PANEL);
    const std::size_t worth = std::min(pieces, products() * batch / WORTH);
    return pool_.ready(std::min(pool_.threads(), std::max<std::size_t>(1, worth)));
}

StopPoll* Fused::poll_within(std::size_t batch, StopPoll& poll) const {
    std::size_t row = products() + STREAMED * program_.d_out;  // plus the loss
    for (const Op& op : program_.ops) row += STREAMED * op.d_out;
    return row * batch > POLLED_PRODUCTS ? &poll : nullptr;
}

bool Fused::stores(std::size_t batch) const {
    if (std::isfinite(program_.clip_norm)) return true;
    std::size_t weights = 0;  // counted as in costs/memory.py
    for (const Op& op : program_.ops) {
        if (op.kind == Kind::columns) weights += multiply_adds(op, program_.numeric);
        for (const int place : {op.weight, op.bias, op.learned, op.blend}) {
            const std::size_t size = place == NONE ? 0 : program_.parameters[at(place)].size;
            weights += place != NONE && tensors_[at(place)].matrix ? size : size > 1 ? STREAMED * size : 0;
        }
    }
    return batch >= SOME_ROWS && batch * weights >= (batch >= MANY_ROWS ? 1 : 5) * STORED;
}

std::size_t Fused::bytes() const {
    std::size_t total = 0;
    const auto add = [&total](const auto& kept) { total += kept.size() * sizeof(*kept.data()); };
    for (const Floats& store : store_) add(store);
    for (const Floats& buffer : buffers_) add(buffer);
    for (const Floats* kept : {&memory_, &vectors_, &gradients_, &halves_[0], &halves_[1], &squares_}) add(*kept);
    for (const Node& node : plan_.nodes) add(node.mean), add(node.scale), add(node.variance);
    for (const BatchRows& n : batch_rows_) add(n.ids), add(n.share), add(n.y), add(n.loss), add(n.classes), add(n.codes);
    return total;
}

void Fused::begin_step(StepThread& w, std::size_t batch, BatchRows& batch_rows) {
    w.batch = batch;
    w.batch_rows = &batch_rows;
    w.n_panels = (batch + PANEL - 1) / PANEL;
    w.panels = panels_of(w.n_panels, w.thread, w.threads);
    // Rows are split among threads if each thread gets enough rows for its tiles, or if weights are so few that
    // barriers cost more. Otherwise units are split.
    w.by_rows = w.n_panels >= (few_weights_ ? w.threads : TILE_PANELS * w.threads) || w.threads == 1;
}

std::unique_ptr<Core<float>> make_fused(const Program& program, std::size_t threads, const std::string& isa,
                                        bool all_threads) {
    return std::make_unique<Fused>(program, threads, kernels_named(isa), all_threads);
}

}  // namespace multilayer
