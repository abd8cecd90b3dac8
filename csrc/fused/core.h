// The internals of the fused core: the data of a step, and how threads share the work. The implementation has three files:
//
//     core.cpp                runs of steps, outputs, state
//     forward_backward.cpp    gather rows, forward pass, backward pass
//     parameter_updates.cpp   gradients of parameters, and their updates
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "fused/memory_plan.h"
#include "kernels/kernels.h"
#include "program.h"
#include "runtime/aligned_floats.h"
#include "runtime/denormals.h"
#include "runtime/thread_pool.h"
#include "runtime/thread_tuner.h"

namespace multilayer {

class Fused final : public Core<float> {
public:
    Fused(const Program& program, std::size_t threads, const Kernels& kernels, bool all_threads);

    std::size_t run(const Table<float>& table, const Order& order, const Schedule& schedule, double* loss, double* norm,
                    const StopRequested& stop) override;

    double gradients(const Table<float>& table, const Order& order, double dropout, std::span<float* const> out,
                     std::span<float* const> buffers, const StopRequested& stop) override;

    double apply(std::span<const float* const> given, std::span<const float* const> buffers, double rate,
                 double decay) override;

    void outputs(const Table<float>& table, std::span<const std::int64_t> rows, bool averaged, float* out,
                 const StopRequested& stop) override;

    bool finite() const override { return all_finite(store_[0].data(), total_); }

    void read(Group group, std::size_t place, float* out) const override;

    void write(Group group, std::size_t place, const float* values) override;

    std::size_t bytes() const override;

private:
    static constexpr std::size_t PIECE = 64;          // panels that are processed at once
    static constexpr std::size_t LIGHT = 16'000;      // with at most this many weights, every thread may read all of them
    static constexpr std::size_t HALVED = 128, WHOLE = 1024;  // batch sizes [HALVED, WHOLE) use sums of two half gradients

    // The data of the rows of a step.
    struct BatchRows {
        std::vector<std::uint32_t> ids;
        std::vector<float> share, y, loss;
        std::vector<std::int64_t> classes, codes;
    };

    // The state of a thread in a step.
    struct StepThread {
        std::size_t thread, threads;
        std::size_t batch = 0, n_panels = 0;
        bool training;
        StopPoll* poll = nullptr;  // only for long steps, and only on the calling thread
        bool by_rows = true;     // whether rows or units are split among threads
        Range panels = {0, 0};   // the panels of this thread if rows are split
        std::size_t first_row = 0;  // position of the first row of the batch
        BatchRows* batch_rows = nullptr;
    };

    // Allocates memory for the gradients of matrices during its lifetime, if steps store no gradients.
    struct GradientMemory {
        explicit GradientMemory(Fused& core) : gradients(core.gradients_), own(gradients.size() > 0) {
            if (!own) gradients = Floats(core.total_);
        }
        ~GradientMemory() {
            if (!own) gradients = Floats();
        }
        GradientMemory(const GradientMemory&) = delete;
        Floats& gradients;
        const bool own;
    };

    static std::size_t at(int place) { return static_cast<std::size_t>(place); }

    // Conversion between (rows, columns) and strips. `pack` sets the padding to zero, because a non-finite step may
    // leave other values there.
    static void unpack(const Strips& shape, const float* from, float* to) {
        each_piece(shape, [&](std::size_t strip, std::size_t plain, std::size_t n) { std::copy_n(from + strip, n, to + plain); });
    }

    static void pack(const Strips& shape, const float* from, float* to) {
        each_piece(shape, [&](std::size_t strip, std::size_t plain, std::size_t n) {
            std::copy_n(from + plain, n, to + strip);
            std::fill_n(to + strip + n, padded(n) - n, 0.0f);
        });
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

    void barrier(const StepThread& w) {
        if (w.threads > 1) pool_.barrier(w.threads);
    }

    // Allocates memory for a number of rows of a table.
    void reserve(std::size_t rows, const Table<float>& table);

    void reserve_panels(std::size_t rows);

    // Allocates memory for the halves of a gradient, if a batch of this size or the last, smaller batch is halved.
    void reserve_halves(std::size_t batch);

    std::size_t categories() const { return program_.ops.empty() ? 0 : program_.ops[0].columns.categories.size(); }

    // Multiply-adds of a row in the forward pass.
    std::size_t products() const;

    // The number of available threads that pay off for a batch, or all threads if `all_threads` is set.
    std::size_t threads_for(std::size_t batch);

    // Returns the poll for stop requests within a step, or null if steps are short.
    StopPoll* poll_within(std::size_t batch, StopPoll& poll) const;

    // Whether all gradients are stored before any parameter is updated. This is needed to clip by norm, and to discard
    // a long step, because an updated parameter cannot be restored.
    bool stores(std::size_t batch) const;

    // Whether the step is discarded. Threads then skip their work but still meet at all barriers.
    bool stopped(const StepThread& w) {
        if (w.poll && w.poll->requested()) stopping_.store(true, std::memory_order_relaxed);
        return stopping_.load(std::memory_order_relaxed);
    }

    void begin_step(StepThread& w, std::size_t batch, BatchRows& batch_rows);

    // The panels of one of `parts` parts of the rows, in multiples of a tile if there are enough panels.
    static Range panels_of(std::size_t n_panels, std::size_t part, std::size_t parts) {
        return share_of(n_panels, n_panels >= 2 * TILE_PANELS * parts ? TILE_PANELS : 1, part, parts);
    }

    // The part of a node for a thread: all units of its rows, or its units of all rows.
    Region region_of(const StepThread& w, std::size_t d, std::size_t grain) const {
        if (w.by_rows) return {0, d, w.panels.first, w.panels.end};
        const Range units = share_of(d, grain, w.thread, w.threads);
        return {units.first, units.end, 0, w.n_panels};
    }

    // The panels of a thread, for work on all units of a row.
    Range rows_of(const StepThread& w) const {
        return w.by_rows ? w.panels : share_of(w.n_panels, 1, w.thread, w.threads);
    }

    // Waits until all units are complete, before another node reads them.
    void barrier_after_units(const StepThread& w) {
        if (!w.by_rows) barrier(w);
    }

    void gather(const StepThread& w, const Table<float>& table, std::span<const std::int64_t> rows,
                std::span<const std::int64_t> ids);

    Affine affine_of(const Node& node) const;

    Pointwise pointwise_of(const StepThread& w, const Node& node, std::uint32_t epoch, double dropout);

    // The counts of the units of a node in a step, with null arrays if they are not counted.
    UnitCounter counter_of(const StepThread& w, const Node& node);

    // Allocates counts for each thread. No threads means that units are not counted.
    void reserve_counts(std::size_t threads);

    // Writes the sums over threads to `unit_counts`.
    void sum_counts();

    Unitwise unitwise_of(const Node& node) const;

    Norm norm_of(const Node& node) const;

    // Calls f(part) for up to PIECE panels at a time.
    template <class F>
    void pieces(const StepThread& w, Region part, F f) {
        for (std::size_t p = part.p0; p < part.p1 && !stopped(w); p += PIECE) {
            f(Region{part.u0, part.u1, p, std::min(p + PIECE, part.p1)});
        }
    }

    // Calls f(first, end) for up to STRIP units at a time, for work on all rows of a unit.
    template <class F>
    void some_units(const StepThread& w, Range units, F f) {
        for (std::size_t u = units.first; u < units.end && !stopped(w); u += STRIP) f(u, std::min(u + STRIP, units.end));
    }

    // Calls f(block) for blocks of units and panels that fit into the first-level cache.
    template <class F>
    void blocks(const StepThread& w, Region part, F f) {
        for (std::size_t p = part.p0; p < part.p1 && !stopped(w); p += TILE_PANELS) {
            for (std::size_t u = part.u0; u < part.u1; u += STRIP) {
                f(Region{u, std::min(u + STRIP, part.u1), p, std::min(p + TILE_PANELS, part.p1)});
            }
        }
    }

    void forward(StepThread& w, std::uint32_t epoch, double dropout);

    void columns(const StepThread& w, Node& node, const BatchRows& batch_rows);

    Embedding embedding_at(const Node& node) const;

    // Computes running statistics after a step: the mean, and the unbiased variance.
    void fresh_statistics(const Node& node, float* mean, float* var) const;

    void backward(StepThread& w);

    Pointwise slopes_of(const Node& node) const;

    // ---- gradients of parameters, and updates ----

    ParameterArrays arrays_of(std::size_t parameter, std::size_t offset = 0);

    void prepare_updates(double rate, double decay, std::uint64_t t, double scale);

    double clip_scale(double norm) const { return norm > program_.clip_norm ? program_.clip_norm / norm : 1.0; }

    // Every other step visits the parameters in reverse order, to use what is still in the cache.
    bool upwards() const { return step % 2 == 1; }

    // Computes all gradients of the units of this thread. Updates parameters at once, or writes gradients to `stored`.
    void gradients_and_updates(const StepThread& w, float* stored);

    // Whether a gradient is the sum of one over the first and one over the second half of the rows, for any number of
    // threads. A thread then uses the rows it has just processed, and reads only sums of other threads. False if a step
    // may be discarded while it computes gradients.
    bool in_halves(std::size_t batch) const;

    // Like gradients_and_updates, where each thread has either the first or the second half of the rows.
    void gradients_in_halves(const StepThread& w, float* stored);

    WeightGradient gradient_at(const StepThread& w, const Node& node, float* stored);

    // Σ δ over half of the rows, for some units.
    void sum_half(const StepThread& w, const Node& node, std::size_t half, Range units);

    // Adds the two halves of the gradient of a bias, and updates the bias.
    void join_bias(int parameter, Range units, bool stored);

    float* gradient_of(int parameter) { return vectors_.data() + vector_at_[at(parameter)]; }

    void sum(const StepThread& w, int parameter, const float* x, const float* y, std::size_t d, Range units, bool stored);

    // Sums over rows, for some units at a time if the step can still be discarded.
    void sum_units(const StepThread& w, const float* x, const float* y, std::size_t d, Range units, float* to, bool stored);

    void update_vector(int parameter, Range units);

    // Whether a learned parameter of an activation is shared by several units, of one or several layers. Thread 0 then
    // adds the gradients of these units in order. Otherwise each unit has its own parameter, updated by the thread of
    // the unit.
    bool adds_up(const Op& op) const;

    void clear_shared();

    void add_shared(const StepThread& w, const Op& op, const Node& node, std::size_t d, bool stored);

    void columns_gradients(const StepThread& w, Node& node, bool stored);

    void apply_stored(const StepThread& w, const float* stored);

    // Σ g² of the last gradient of a parameter.
    double gradient_squares(std::size_t i) const;

    double gradient_norm() const;

    void record_statistics();

    static double total_loss(const BatchRows& batch_rows, std::size_t n);

    const Program program_;
    const Kernels& kernels_;
    const bool all_threads_;
    ThreadPool pool_;
    ThreadTuner tuner_;
    MemoryPlan plan_;
    std::vector<Tensor> tensors_;
    std::size_t total_ = 0;
    Floats store_[5];  // by Group: parameters, (unused), slot0, slot1, averages
    std::vector<Floats> buffers_;
    std::vector<float> quantiles_;
    const float* parameters_now_ = nullptr;
    std::atomic<bool> stopping_ = false;

    Floats memory_;             // values and temporaries of a step
    std::size_t capacity_ = 0;  // in panels
    BatchRows batch_rows_[2];        // of this step and of the previous one, whose loss is still read
    bool has_classes_ = false;
    std::size_t targets_ = 0;

    std::vector<std::size_t> vector_at_, squares_at_;
    Floats vectors_;    // gradients of all parameters except matrices
    Floats gradients_;  // of matrices, if steps store them
    Floats halves_[2];  // gradients of all parameters over each half of the rows
    Floats squares_;    // Σ g² of each row of each matrix, one per cache line
    std::vector<std::vector<std::int64_t>> counts_;  // in a counted run: unit_counts of each thread
    std::vector<Update> updates_;
    std::vector<float> units_;
    bool few_weights_ = false, few_linear_weights_ = false;  // few weights; few weights, and only linear layers learn
    std::vector<int> left_ = std::vector<int>(program_.parameters.size());
};

}  // namespace multilayer
