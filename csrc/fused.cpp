#include "fused.h"

#include <cmath>
#include <stdexcept>

#include "fused_core.h"
#include "machine.h"

namespace multilayer {
namespace {

constexpr std::size_t PREDICTED_AT_ONCE = 256;  // rows

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

}  // namespace

const Kernels& kernels_named(const std::string& name) {
    const std::vector<const Kernels*> found = usable();
    if (name.empty()) return *found.back();
    for (const Kernels* k : found) {
        if (k->name == name) return *k;
    }
    throw std::invalid_argument("this processor does not run the kernels '" + name + "'");
}

Fused::Fused(const Program& program, std::size_t threads, const Kernels& kernels)
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

std::size_t Fused::run(const Table<float>& table, const Order& order, const Schedule& schedule, double* loss, double* norm,
                const std::atomic<bool>& stop, std::size_t& taken) {
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
                if (program_.taps_at(step)) tap();
                if (!std::isfinite(loss[s]) || !std::isfinite(norm[s])) bad = s, halt = s + 1;
            }
        }
    });
    if (const std::size_t end = halt.load(); end < steps) taken = end;
    return bad;
}

double Fused::gradients(const Table<float>& table, const Order& order, double dropout, std::span<float* const> out,
                 std::span<float* const> buffers) {
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

double Fused::apply(std::span<const float* const> given, std::span<const float* const> buffers, double rate,
             double decay) {
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

void Fused::outputs(const Table<float>& table, std::span<const std::int64_t> rows, bool averaged, float* out) {
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
    for (Numbers& numbers : numbers_) {
        if (table.y) numbers.y.resize(std::max(numbers.y.size(), capacity_ * LANE * targets_));
    }
}

void Fused::reserve_panels(std::size_t rows) {
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

std::size_t Fused::threads_for(std::size_t batch) const {
    std::size_t products = 0;
    for (const Op& op : program_.ops) {
        if (op.kind == Kind::linear) products += op.d_in * op.d_out;
        if (op.kind == Kind::glu) products += 2 * op.d_in * op.d_out;
        if (op.kind == Kind::columns) products += program_.numeric * op.columns.K * (op.columns.D + 8);
    }
    const std::size_t worth = std::max<std::size_t>(1, products * batch / 400'000);
    return std::min({pool_.threads(), worth});
}

void Fused::begin(Work& w, std::size_t batch, Numbers& numbers) {
    w.batch = batch;
    w.numbers = &numbers;
    w.n_panels = (batch + LANE - 1) / LANE;
    w.panels = share_of(w.n_panels, w.n_panels >= 2 * TOGETHER * w.threads ? TOGETHER : 1, w.thread, w.threads);
    // Rows are shared out where each thread has enough of them for its tiles; otherwise units are.
    w.by_rows = w.threads == 1 || w.n_panels >= TOGETHER * w.threads;
}

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
