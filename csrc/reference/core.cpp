// The reference core: forward pass, backward pass and updates, one operation after another.
#include "reference/reference.h"

#include <cmath>

#include "runtime/random.h"
#include "reference/columns.h"
#include "reference/layers.h"

namespace multilayer {
namespace {

using reference::Context;
using reference::Tensors;

constexpr std::size_t SLAB = 256;  // rows of a forward pass in prediction, to limit memory

// Returns the parameters of an operation.
std::vector<int> parameters_of(const Op& op) {
    std::vector<int> found{op.weight, op.bias, op.learned, op.blend};
    const Columns& c = op.columns;
    found.insert(found.end(), {c.frequency, c.phase, c.weight, c.bias});
    for (const Category& category : c.categories) found.push_back(category.table);
    std::erase(found, NONE);
    return found;
}

// The additional data of a forward pass in training.
struct Training {
    std::span<const std::int64_t> ids;
    std::uint32_t epoch;
    double dropout;
};

template <class T>
class Reference final : public Core<T> {
public:
    explicit Reference(const Program& program) : program_(program), learning_from_(program.ops.size()) {
        for (const Parameter& p : program_.parameters) parameters_.emplace_back(p.size);
        for (const std::size_t size : program_.buffers) buffers_.emplace_back(size);
        fresh_ = buffers_;
        gradients_ = parameters_;
        for (std::size_t slot = 0; slot < program_.optimizer.slots(); ++slot) slots_[slot] = parameters_;
        if (program_.average >= 0) averages_ = parameters_;
        for (auto* kept : {&y_, &kept_, &also_}) kept->resize(program_.ops.size());
        for (std::size_t i = program_.ops.size(); i-- > 0;) {
            if (!parameters_of(program_.ops[i]).empty()) learning_from_ = i;
        }
    }

    std::size_t run(const Table<T>& table, const Order& order, const Schedule& schedule, double* loss, double* norm,
                    const StopRequested& stop) override {
        StopPoll poll(stop);
        this->unit_counts.assign(this->counts_units ? counts() : 0, 0);
        for (std::size_t s = 0; s < order.steps() && !poll.requested(); ++s) {
            const std::size_t first = s * order.batch, rows = std::min(order.batch, order.rows.size() - first);
            const Order batch{order.rows.subspan(first, rows), order.ids.subspan(first, rows), rows, order.epoch};
            try {
                loss[s] = find(table, batch, schedule.dropout[s], poll);
                count_units();
            } catch (const Stopped&) {
                return FINISHED;
            }
            norm[s] = norm_of(gradients_);
            if (!std::isfinite(loss[s]) || !std::isfinite(norm[s])) return s;
            buffers_ = fresh_;
            const bool recorded = program_.records_statistics(this->step + 1);
            for (std::size_t i = 0; recorded && i < gradients_.size(); ++i) this->statistics.push_back(norm_of(gradients_[i]));
            update(norm[s], schedule.rate[s], schedule.decay[s]);
            for (std::size_t i = 0; recorded && i < gradients_.size(); ++i) this->statistics.push_back(norm_of(parameters_[i]));
        }
        return FINISHED;
    }

    double gradients(const Table<T>& table, const Order& order, double dropout, std::span<T* const> gradients,
                     std::span<T* const> buffers, const StopRequested& stop) override {
        StopPoll poll(stop);
        double loss = 0;
        try {
            loss = find(table, order, dropout, poll);
        } catch (const Stopped&) {
            return loss;
        }
        for (std::size_t i = 0; i < gradients_.size(); ++i) std::ranges::copy(gradients_[i], gradients[i]);
        for (std::size_t i = 0; i < fresh_.size(); ++i) std::ranges::copy(fresh_[i], buffers[i]);
        return loss;
    }

    double apply(std::span<const T* const> gradients, std::span<const T* const> buffers, double rate,
                 double decay) override {
        for (std::size_t i = 0; i < gradients_.size(); ++i) {
            gradients_[i].assign(gradients[i], gradients[i] + gradients_[i].size());
        }
        for (std::size_t i = 0; i < buffers_.size(); ++i) {
            buffers_[i].assign(buffers[i], buffers[i] + buffers_[i].size());
        }
        const double norm = norm_of(gradients_);
        update(norm, rate, decay);
        return norm;
    }

    void outputs(const Table<T>& table, std::span<const std::int64_t> rows, bool averaged, T* out,
                 const StopRequested& stop) override {
        StopPoll poll(stop);
        const Tensors<T>& parameters = averaged && program_.average >= 0 ? averages_ : parameters_;
        for (std::size_t first = 0; first < rows.size(); first += SLAB) {
            gather(table, rows.subspan(first, std::min(SLAB, rows.size() - first)));
            try {
                out = std::ranges::copy(forward(parameters, nullptr, poll), out).out;
            } catch (const Stopped&) {
                return;
            }
        }
    }

    bool finite() const override {
        return std::ranges::all_of(parameters_, [](const std::vector<T>& p) { return all_finite(p.data(), p.size()); });
    }

    void read(Group group, std::size_t place, T* out) const override {
        std::ranges::copy(const_cast<Reference*>(this)->tensor(group, place), out);
    }

    void write(Group group, std::size_t place, const T* values) override {
        std::vector<T>& kept = tensor(group, place);
        kept.assign(values, values + kept.size());
    }

    std::size_t bytes() const override {
        std::size_t numbers = x_.size();
        for (const Tensors<T>* some : {&parameters_, &buffers_, &slots_[0], &slots_[1], &averages_, &y_, &kept_, &also_,
                                       &gradients_, &fresh_}) {
            for (const std::vector<T>& one : *some) numbers += one.size();
        }
        return numbers * sizeof(T) + codes_.size() * sizeof(std::int64_t);
    }

private:
    std::vector<T>& tensor(Group group, std::size_t place) {
        switch (group) {
            case Group::parameters: return parameters_[place];
            case Group::buffers: return buffers_[place];
            case Group::slot0: return slots_[0][place];
            case Group::slot1: return slots_[1][place];
            case Group::averages: break;
        }
        return averages_[place];
    }

    // Copies the numbers and codes of the rows.
    void gather(const Table<T>& table, std::span<const std::int64_t> rows) {
        B_ = rows.size();
        const std::size_t F = program_.numeric, C = categories();
        x_.resize(B_ * F);
        codes_.resize(B_ * C);
        for (std::size_t b = 0; b < B_; ++b) {
            const auto row = static_cast<std::size_t>(rows[b]);
            if (F) std::copy_n(table.x + row * table.stride, F, &x_[b * F]);
            if (C) std::copy_n(table.codes + row * C, C, &codes_[b * C]);
        }
    }

    // The length of unit_counts.
    std::size_t counts() const {
        std::size_t n = 0;
        for (const Op& op : program_.ops) n += op.counted.any() ? 2 * op.d_out : 0;
        return n;
    }

    // Counts the units of the last forward pass, whose inputs are kept.
    void count_units() {
        if (!this->counts_units) return;
        std::int64_t* counted = this->unit_counts.data();
        for (std::size_t i = 0; i < program_.ops.size(); ++i) {
            const Op& op = program_.ops[i];
            if (!op.counted.any()) continue;
            reference::count_units(op, B_, (i ? y_[i - 1] : x_).data(), counted);
            counted += 2 * op.d_out;
        }
    }

    std::size_t categories() const { return program_.ops.empty() ? 0 : program_.ops[0].columns.categories.size(); }

    // Returns operation i over the gathered rows.
    Context<T> place(std::size_t i, const Tensors<T>& parameters, StopPoll& poll) {
        return {program_.ops[i], B_, parameters, (i ? y_[i - 1] : x_).data(), y_[i], kept_[i], also_[i], poll};
    }

    // Returns the outputs (B, d_out) of the gathered rows. `training` is null for prediction.
    const std::vector<T>& forward(const Tensors<T>& parameters, const Training* training, StopPoll& poll) {
        std::vector<std::size_t> entered;
        for (std::size_t i = 0; i < program_.ops.size(); ++i) {
            poll.throw_if_requested();
            const Op& op = program_.ops[i];
            y_[i].resize(B_ * op.d_out);
            const Context<T> at = place(i, parameters, poll);
            const auto mean = static_cast<std::size_t>(op.mean), var = static_cast<std::size_t>(op.var);
            switch (op.kind) {
                case Kind::linear: linear(at); break;
                case Kind::glu: glu(at); break;
                case Kind::activation: activation(at); break;
#define CASE(name) \
    case Kind::name: unitwise(at, reference::name<T>); break;
                MULTILAYER_UNITWISE(CASE)
#undef CASE
                MULTILAYER_ROWWISE(MULTILAYER_CASE) row_norm(at); break;
                case Kind::columns: columns(at, buffers_, program_.numeric, codes_.data()); break;
                case Kind::batch_norm:
                    if (training) {
                        batch_norm(at, fresh_[mean].data(), fresh_[var].data());
                    } else {
                        batch_norm_running(at, buffers_[mean].data(), buffers_[var].data());
                    }
                    break;
                case Kind::dropout:
                    if (training) {
                        dropout(at, {program_.seed, Purpose::dropout, training->epoch, op.part}, training->ids,
                                op.p * training->dropout);
                    } else {
                        std::copy_n(at.x, y_[i].size(), y_[i].data());
                    }
                    break;
                case Kind::enter:
                    entered.push_back(i);
                    std::copy_n(at.x, y_[i].size(), y_[i].data());
                    break;
                case Kind::leave: {
                    const std::vector<T>& before = y_[entered.back()];
                    entered.pop_back();
                    for (std::size_t j = 0; j < y_[i].size(); ++j) y_[i][j] = before[j] + at.x[j];
                    break;
                }
            }
        }
        return y_.empty() ? x_ : y_.back();
    }

    // Adds the gradient of every parameter, given that of the outputs. Stops at the first operation with parameters,
    // whose dx is not needed.
    void backward(std::vector<T> dy, StopPoll& poll) {
        std::vector<std::vector<T>> left;
        std::vector<T> next;
        for (std::size_t i = program_.ops.size(); i-- > learning_from_;) {
            poll.throw_if_requested();
            const Op& op = program_.ops[i];
            const Context<T> at = place(i, parameters_, poll);
            next.resize(B_ * op.d_in);
            T* dx = i > learning_from_ ? next.data() : nullptr;
            switch (op.kind) {
                case Kind::linear: linear_back(at, dy.data(), dx, gradients_); break;
                case Kind::glu: glu_back(at, dy.data(), dx, gradients_); break;
                case Kind::activation: activation_back(at, dy.data(), dx, gradients_); break;
#define CASE(name) \
    case Kind::name: unitwise_back(at, dy.data(), dx, gradients_, reference::name##_slope<T>); break;
                MULTILAYER_UNITWISE(CASE)
#undef CASE
                MULTILAYER_ROWWISE(MULTILAYER_CASE) row_norm_back(at, dy.data(), dx, gradients_); break;
                case Kind::batch_norm: batch_norm_back(at, dy.data(), dx, gradients_); break;
                case Kind::columns: columns_back(at, program_.numeric, codes_.data(), dy.data(), gradients_); break;
                case Kind::dropout: dropout_back(at, dy.data(), dx); break;
                case Kind::leave:
                    left.push_back(dy);
                    next = dy;
                    break;
                case Kind::enter:
                    for (std::size_t j = 0; j < next.size(); ++j) next[j] = left.back()[j] + dy[j];
                    left.pop_back();
                    break;
            }
            std::swap(dy, next);
        }
    }

    // Computes the loss over the rows, gradients_ and fresh_, and changes nothing else. The weight of row r is w_r / Σ
    // w.
    double find(const Table<T>& table, const Order& order, double dropout, StopPoll& poll) {
        gather(table, order.rows);
        fresh_ = buffers_;
        const Training training{order.ids, order.epoch, dropout};
        const std::vector<T>& z = forward(parameters_, &training, poll);

        double weights = 0, loss = 0;
        for (const std::int64_t row : order.rows) weights += table.weight ? double(table.weight[row]) : 1.0;
        const std::size_t C = program_.d_out;
        std::vector<T> dz(B_ * C);
        for (std::size_t b = 0; b < B_; ++b) {
            poll.throw_if_requested();
            const auto row = static_cast<std::size_t>(order.rows[b]);
            const T share = T((table.weight ? double(table.weight[row]) : 1.0) / weights);
            const reference::Target<T> target{table.classes ? table.classes + row : nullptr,
                                              table.y ? table.y + row * table.targets : nullptr};
            loss += double(row_loss(program_.loss, C, &z[b * C], target, &dz[b * C]) * share);
            for (std::size_t c = 0; c < C; ++c) dz[b * C + c] *= share;
        }
        for (std::vector<T>& g : gradients_) std::ranges::fill(g, T(0));
        backward(std::move(dz), poll);
        return B_ ? loss : std::nan("");  // the mean over no rows
    }

    // In double, so that squares of large floats do not overflow.
    static double squares_of(const std::vector<T>& values) {
        double sum = 0;
        for (const T x : values) sum += double(x) * double(x);
        return sum;
    }

    static double norm_of(const std::vector<T>& values) { return std::sqrt(squares_of(values)); }

    // The norm of all gradients together.
    static double norm_of(const Tensors<T>& gradients) {
        double total = 0;
        for (const std::vector<T>& g : gradients) total += squares_of(g);
        return std::sqrt(total);
    }

    // Clips by norm, then by value; applies L2 and weight decay; makes the step of the optimizer; updates the average.
    void update(double norm, double rate, double decay) {
        ++this->step;
        for (std::size_t place = 0; place < parameters_.size(); ++place) {
            const Parameter& about = program_.parameters[place];
            const double step_rate = rate * about.rate_factor;
            const T shrink = T(1 - step_rate * decay * about.decay_factor), l2 = T(program_.l2 * about.decay_factor);
            const T clip = norm > program_.clip_norm ? T(program_.clip_norm / norm) : T(1);
            const T most = T(program_.clip_value);
            std::vector<T>&p = parameters_[place], &g = gradients_[place];
            for (std::size_t i = 0; i < p.size(); ++i) {
                g[i] *= clip;
                g[i] = g[i] < -most ? -most : g[i] > most ? most : g[i];
                g[i] += l2 * p[i];
                p[i] *= shrink;
            }
            const auto slot = [&](std::size_t i) { return slots_[i].empty() ? nullptr : slots_[i][place].data(); };
            reference::descend(program_.optimizer, step_rate, static_cast<double>(this->step), p.size(), g.data(), p.data(),
                               slot(0), slot(1));
            if (program_.average < 0) continue;
            const T beta = T(program_.average), rest = T(1 - program_.average);
            for (std::size_t i = 0; i < p.size(); ++i) averages_[place][i] = beta * averages_[place][i] + rest * p[i];
        }
    }

    const Program program_;
    Tensors<T> parameters_, buffers_, slots_[2], averages_;
    std::size_t learning_from_;  // the first operation with parameters

    // Data of one forward and backward pass.
    std::size_t B_ = 0;
    std::vector<T> x_;                 // (B, numeric)
    std::vector<std::int64_t> codes_;  // (B, categories)
    Tensors<T> y_, kept_, also_;       // per operation
    Tensors<T> gradients_, fresh_;     // fresh: new values of the buffers
};

}  // namespace

template <class T>
std::unique_ptr<Core<T>> make_reference(const Program& program) {
    return std::make_unique<Reference<T>>(program);
}

template std::unique_ptr<Core<float>> make_reference<float>(const Program&);
template std::unique_ptr<Core<double>> make_reference<double>(const Program&);

}  // namespace multilayer
