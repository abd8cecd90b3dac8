// The prediction core: packed weights, blocks of rows, and how threads share them.
#include "predict/predict.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "runtime/aligned_floats.h"
#include "runtime/denormals.h"
#include "runtime/thread_pool.h"
#include "runtime/thread_tuner.h"

namespace multilayer {
namespace {

constexpr std::size_t BLOCK = 48;                // maximum rows of a block: whole tiles of 6 and 12 rows, whole panels
constexpr std::size_t TILE = 6;                  // minimum rows per thread
constexpr std::size_t ROW_BY_ROW = 4;            // with fewer rows than this, rows are embedded one by one
constexpr std::size_t WORTH = 400'000;           // multiply-adds for which a thread with its own rows pays off
constexpr std::size_t WORTH_UNITS = 60'000;      // multiply-adds of a block for which splitting its units pays off
constexpr std::chrono::microseconds CLOSE{100};  // time between two calls for which other threads still spin

// An operation with pointers to its parameters.
struct Step {
    Kind kind = Kind::linear;
    std::size_t d_in = 0, d_out = 0;
    Affine affine{};
    Pointwise pointwise{};
    Unitwise unitwise{};
    Norm norm{};
    Embedding embedding{};
    const Columns* columns = nullptr;
    std::vector<const float*> tables;  // of categories; null for one-hot
};

class PackedCore final : public PredictionCore {
public:
    PackedCore(const Program& program, std::span<const float* const> parameters, std::span<const float* const> buffers,
           std::size_t threads, const Kernels& kernels, bool all_threads)
    : program_(program), kernels_(kernels), all_threads_(all_threads), pool_(threads) {
        for (const Op& op : program_.ops) products_ += multiply_adds(op, program_.numeric);
        for (std::size_t pass = 0; pass < 2; ++pass) {  // the first pass computes sizes, the second sets pointers
            if (pass == 1) store_ = Floats(used_), used_ = 0;
            steps_.clear(), widest_ = padded(program_.numeric), panel_ = 0, depth_ = 0;
            std::size_t depth = 0;
            for (const Op& op : program_.ops) {
                if (op.kind == Kind::dropout) continue;
                add(op, parameters, buffers);
                if (op.kind == Kind::enter) depth_ = std::max(depth_, ++depth);
                if (op.kind == Kind::leave) --depth;
            }
        }
        // The number of lines is odd, because rows with a distance of a power of two would use the same cache sets.
        widest_ = (widest_ / PANEL | 1) * PANEL;
    }

    void outputs(const Table<float>& table, std::size_t first, std::size_t n, float* out,
                 const StopRequested& stop) const override {
        StopPoll poll(stop);
        const bool worth_units = all_threads_ || products_ * n >= 2 * WORTH_UNITS;
        if (n <= BLOCK && pool_.threads() > 1 && worth_units) return one_block(table, first, n, out, poll);
        const std::size_t worth = std::max<std::size_t>(1, products_ * n / WORTH);
        const std::size_t threads = std::max<std::size_t>(1, std::min({pool_.threads(), (n + TILE - 1) / TILE, worth}));
        // Each thread gets the same number of blocks of the same size, and blocks are as large as possible.
        const std::size_t parts = (n + BLOCK * threads - 1) / (BLOCK * threads) * threads;
        const std::size_t rows = n ? (n + parts - 1) / parts : BLOCK;
        std::atomic<std::size_t> next{0};
        std::atomic<bool> stopping = false;
        const auto work = [&](std::size_t thread, std::size_t) {
            const FlushDenormals flushed;
            Scratch scratch(scratch_size());
            const Share share{0, 1, thread == 0 ? &poll : nullptr, stopping};
            for (std::size_t begin; (begin = next.fetch_add(rows, std::memory_order_relaxed)) < n;) {
                const std::size_t count = std::min(rows, n - begin);
                block(table, first + begin, count, scratch.data(), out + begin * program_.d_out, share);
                if (stopped(share)) next = n;
            }
        };
        // If another call uses the other threads, this call runs on its own thread only.
        if (threads == 1 || busy_.test_and_set()) return work(0, 1);
        const ReleaseBusy release{busy_};
        on_threads(threads, !all_threads_ && products_ * n <= TUNED_PRODUCTS, n, work);
    }

    std::size_t bytes() const override { return sizeof(float) * (store_.size() + scratch_size()); }

private:
    using Clock = std::chrono::steady_clock;

    struct ReleaseBusy {
        std::atomic_flag& busy;
        ~ReleaseBusy() { busy.clear(); }
    };

    static std::size_t at(int place) { return static_cast<std::size_t>(place); }

    // Temporary memory of this thread, kept for its next call. A stop request may run a signal handler that predicts as
    // well. That nested call finds the memory in use, and allocates its own.
    class Scratch {
    public:
        explicit Scratch(std::size_t n) : memory_(std::exchange(kept(), Floats())) {
            if (memory_.size() < n) memory_ = Floats(n);
        }
        ~Scratch() {
            if (memory_.size() > kept().size()) kept() = std::move(memory_);
        }
        Scratch(const Scratch&) = delete;
        float* data() { return memory_.data(); }

    private:
        static Floats& kept() {
            thread_local Floats memory;
            return memory;
        }

        Floats memory_;
    };

    std::size_t scratch_size() const { return (2 + depth_) * BLOCK * widest_ + panel_; }

    // Returns n floats of the store in whole lines, or null in the first pass.
    float* take(std::size_t n) {
        float* p = store_.size() ? store_.data() + used_ : nullptr;
        used_ += padded(n);
        return p;
    }

    const float* copy(const float* from, std::size_t n) {
        float* to = take(n);
        if (to) std::copy_n(from, n, to);
        return to;
    }

    const float* vector(int place, std::span<const float* const> parameters) {
        return place == NONE ? nullptr : copy(parameters[at(place)], program_.parameters[at(place)].size);
    }

    void add(const Op& op, std::span<const float* const> parameters, std::span<const float* const> buffers) {
        Step s;
        s.kind = op.kind, s.d_in = op.d_in, s.d_out = op.d_out;
        switch (op.kind) {
            case Kind::linear:
            case Kind::glu: {
                const std::size_t rows = op.kind == Kind::glu ? 2 * op.d_out : op.d_out;
                const Strips strips{op.d_in, rows};
                float *weight = take(strips.size()), *bias = take(rows);
                for (std::size_t o = 0; weight && o < rows; ++o) {
                    for (std::size_t k = 0; k < op.d_in; ++k) {
                        weight[strips.at(k, o)] = parameters[at(op.weight)][o * op.d_in + k];
                    }
                    bias[o] = op.bias == NONE ? 0.0f : parameters[at(op.bias)][o];
                }
                s.affine = {weight, bias, static_cast<float>(op.factor), op.d_in, rows};
                s.pointwise.function = op.function;
                widest_ = std::max(widest_, padded(rows));
                break;
            }
            case Kind::activation:
                s.pointwise.function = op.function;
                s.pointwise.constant = static_cast<float>(op.function == Function::silu ? 1.0 : op.constant);
                s.pointwise.learned = vector(op.learned, parameters);
                s.pointwise.per_unit = op.learned != NONE && program_.parameters[at(op.learned)].size > 1;
                s.pointwise.blend = vector(op.blend, parameters);
                s.pointwise.d = op.d_out;
                break;
            MULTILAYER_UNITWISE(MULTILAYER_CASE)
                s.unitwise = {op.kind, op.d_in, vector(op.weight, parameters), vector(op.bias, parameters)};
                break;
            case Kind::columns: columns(s, op, parameters, buffers); break;
            case Kind::enter:
            case Kind::leave:
            case Kind::dropout: break;
            default: {
                float *mean = nullptr, *inverse = nullptr;
                if (op.kind == Kind::batch_norm) {
                    mean = take(op.d_in), inverse = take(op.d_in);
                    for (std::size_t u = 0; mean && u < op.d_in; ++u) {
                        mean[u] = buffers[at(op.mean)][u];
                        inverse[u] = 1.0f / std::sqrt(buffers[at(op.var)][u] + static_cast<float>(op.eps));
                    }
                }
                s.norm = {op.kind, op.d_in, op.kind == Kind::group_norm ? op.groups : 1, static_cast<float>(op.eps),
                          vector(op.weight, parameters), vector(op.bias, parameters), mean, inverse};
                panel_ = std::max(panel_, PANEL * (3 * padded(op.d_in) + s.norm.groups));
            }
        }
        widest_ = std::max(widest_, padded(op.d_out));
        steps_.push_back(std::move(s));
    }

    void columns(Step& s, const Op& op, std::span<const float* const> parameters, std::span<const float* const> buffers) {
        const Columns& c = op.columns;
        s.columns = &c;
        Embedding& e = s.embedding = embedding_of(program_, op);
        e.frequency = vector(c.frequency, parameters), e.phase = vector(c.phase, parameters);
        e.weight = vector(c.weight, parameters), e.bias = vector(c.bias, parameters);
        e.edges = c.edges == NONE ? nullptr : copy(buffers[at(c.edges)], program_.buffers[at(c.edges)]);
        for (const Category& category : c.categories) s.tables.push_back(vector(category.table, parameters));
        panel_ = std::max(panel_, PANEL * (e.F * (1 + e.K + kernels_.slopes_of(e)) + padded(e.F * e.width)));
    }

    // Predicts a single block with its units split among threads. This pays off because one core takes longer to read
    // all weights than two cores take to read half of them each. It is done only for calls in quick succession, while
    // the other threads still spin: waking a thread takes longer than a row. The tuner measures whether it pays off.
    void one_block(const Table<float>& table, std::size_t first, std::size_t n, float* out, StopPoll& poll) const {
        Scratch scratch(scratch_size());
        std::atomic<bool> stopping = false;
        const auto work = [&](std::size_t thread, std::size_t threads) {
            const FlushDenormals flushed;
            block(table, first, n, scratch.data(), out, {thread, threads, thread == 0 ? &poll : nullptr, stopping});
        };
        if (busy_.test_and_set()) return work(0, 1);
        const ReleaseBusy release{busy_};
        const bool close = Clock::now() - last_ < CLOSE;
        const std::size_t worth = close ? std::min(pool_.threads(), products_ * n / WORTH_UNITS) : 1;
        on_threads(all_threads_ ? pool_.threads() : worth, !all_threads_ && close, n, work);
    }

    // Calls work(thread, threads) on at most `most` threads. If `tuned` is set, the tuner chooses the number of
    // threads. The caller must hold the flag.
    template <class Work>
    void on_threads(std::size_t most, bool tuned, std::size_t n, const Work& work) const {
        const Clock::time_point start = Clock::now();
        ThreadTuner& tuner = tuners_[n <= BLOCK][static_cast<std::size_t>(std::bit_width(n))];
        const std::size_t chosen = tuned ? tuner.next(most, 0) : most;
        const std::size_t threads = pool_.ready(chosen);
        pool_.run(threads, [&](std::size_t thread) { work(thread, threads); });
        last_ = Clock::now();
        const std::chrono::duration<double> seconds = last_ - start;
        if (tuned && threads == chosen) tuner.record(seconds.count() / static_cast<double>(n));
    }

    // The part of a block for a thread, and the poll for stop requests.
    struct Share {
        std::size_t thread, threads;
        StopPoll* poll;
        std::atomic<bool>& stopping;
    };

    // Whether the call must end. Threads then skip their work but still meet at all barriers.
    static bool stopped(const Share& share) {
        if (share.poll && share.poll->requested()) share.stopping.store(true, std::memory_order_relaxed);
        return share.stopping.load(std::memory_order_relaxed);
    }

    // Splits at whole strips, so that the weights of a thread are contiguous.
    static Affine some_units(const Affine& a, Range units) {
        const std::size_t weights = Strips{a.d_in, a.d_out}.first(units.first / STRIP);
        return {a.weight + weights, a.bias + units.first, a.factor, a.d_in, units.end - units.first};
    }

    static Pointwise some_units(Pointwise p, Range units) {
        p.d = units.end - units.first;
        if (p.learned && p.per_unit) p.learned += units.first;
        if (p.blend) p.blend += units.first;
        return p;
    }

    // Computes rows first .. first + n - 1 through all steps, where n is at most BLOCK. Threads that share a block use
    // the same memory: each computes its units of linear steps and of the activations after them. The first thread
    // computes all other steps.
    void block(const Table<float>& table, std::size_t first, std::size_t n, float* memory, float* out, Share share) const {
        float *here = memory, *other = memory + BLOCK * widest_, *saved = memory + 2 * BLOCK * widest_;
        float* panels = saved + depth_ * BLOCK * widest_;
        const float* x = table.x + first * table.stride;  // the input of the next step
        std::size_t stride = table.stride;
        std::size_t d = program_.numeric;
        bool leads = share.thread == 0;  // the first thread, unless the call was stopped
        const bool polled = products_ * n > POLLED_PRODUCTS;
        // Copies the values to memory of this block, for steps that work in place.
        const auto own = [&] {
            if (x == here) return;
            for (std::size_t b = 0; leads && b < n; ++b) std::copy_n(x + b * stride, d, here + b * widest_);
            x = here, stride = widest_;
        };
        enum { nobody, first_thread, all } wrote = nobody;  // which threads wrote values that the others have not seen yet
        const auto barrier = [&] {
            if (share.threads > 1) pool_.barrier(share.threads);
        };
        for (std::size_t i = 0; i < steps_.size(); ++i) {
            const Step& s = steps_[i];
            const bool shared = s.kind == Kind::linear && s.d_out > STRIP * (share.threads - 1);
            if (wrote == all || (wrote == first_thread && shared)) barrier();
            wrote = shared ? all : first_thread;
            const bool gone = polled && stopped(share);
            leads = leads && !gone;
            switch (s.kind) {
                case Kind::linear: {
                    const std::size_t mine = leads ? s.d_out : 0;
                    const Range part = shared ? share_of(s.d_out, STRIP, share.thread, share.threads) : Range{0, mine};
                    const Range units = gone ? Range{0, 0} : part;
                    const bool bent = i + 1 < steps_.size() && steps_[i + 1].kind == Kind::activation;
                    if (units.first < units.end) {
                        kernels_.forward_rows(some_units(s.affine, units), x, stride, other + units.first, widest_, n);
                        if (bent) {
                            const Pointwise bend = some_units(steps_[i + 1].pointwise, units);
                            kernels_.pointwise_rows(bend, other + units.first, widest_, n);
                        }
                    }
                    i += bent;
                    std::swap(here, other);
                    x = here, stride = widest_;
                    break;
                }
                case Kind::glu:
                    if (leads) kernels_.forward_rows(s.affine, x, stride, other, widest_, n);
                    if (leads) kernels_.gate_rows(s.pointwise.function, s.d_out, other, widest_, here, widest_, n);
                    x = here, stride = widest_;
                    break;
                case Kind::activation:
                    own();
                    if (leads) kernels_.pointwise_rows(s.pointwise, here, widest_, n);
                    break;
                MULTILAYER_UNITWISE(MULTILAYER_CASE)
                    own();
                    if (leads) kernels_.unitwise_rows(s.unitwise, here, widest_, n);
                    break;
                case Kind::enter:
                    own();
                    for (std::size_t b = 0; leads && b < n; ++b) std::copy_n(here + b * widest_, d, saved + b * widest_);
                    saved += BLOCK * widest_;
                    break;
                case Kind::leave:
                    saved -= BLOCK * widest_;
                    for (std::size_t b = 0; leads && b < n * widest_; b += widest_) {
                        for (std::size_t u = 0; u < d; ++u) here[b + u] += saved[b + u];
                    }
                    break;
                case Kind::columns:
                    if (leads) embed(s, table, first, n, here, panels);
                    x = here, stride = widest_;
                    break;
                case Kind::dropout: break;
                default:
                    own();
                    if (leads) normalise(s.norm, n, here, panels);
            }
            d = s.d_out;
        }
        if (wrote == all) barrier();
        if (!leads) return;
        for (std::size_t b = 0; b < n; ++b) std::copy_n(x + b * stride, program_.d_out, out + b * program_.d_out);
    }

    // In place, in panels of sixteen rows, so that sums over a row have the bits of a training core.
    void normalise(const Norm& norm, std::size_t n, float* x, float* panels) const {
        const std::size_t d = norm.d, size = PANEL * padded(d);
        float *from = panels, *to = panels + size, *hat = to + size, *inverse = hat + size;
        for (std::size_t b = 0; b < n; b += PANEL) {
            const std::size_t count = std::min(PANEL, n - b);
            for (std::size_t l = 0; l < PANEL; ++l) {
                const float* row = x + (b + std::min(l, count - 1)) * widest_;
                for (std::size_t u = 0; u < d; ++u) from[u * PANEL + l] = row[u];
            }
            kernels_.norm(norm, from, to, hat, inverse, 0, 1);
            for (std::size_t l = 0; l < count; ++l) {
                for (std::size_t u = 0; u < d; ++u) x[(b + l) * widest_ + u] = to[u * PANEL + l];
            }
        }
    }

    void embed(const Step& s, const Table<float>& table, std::size_t first, std::size_t n, float* y, float* panels) const {
        const Embedding& e = s.embedding;
        const std::size_t d = e.F * e.width;
        const float* x = table.x + first * table.stride;
        if (n < ROW_BY_ROW || e.numeric == Numeric::none) {
            for (std::size_t b = 0; b < n; ++b) kernels_.embed_row(e, x + b * table.stride, y + b * widest_);
        } else {
            float *from = panels, *to = from + e.F * PANEL, *inside = to + padded(d) * PANEL;
            float* slopes = inside + e.F * e.K * PANEL;
            for (std::size_t b = 0; b < n; b += PANEL) {
                const std::size_t count = std::min(PANEL, n - b);
                for (std::size_t l = 0; l < PANEL; ++l) {
                    const float* row = x + (b + std::min(l, count - 1)) * table.stride;
                    for (std::size_t f = 0; f < e.F; ++f) from[f * PANEL + l] = row[f];
                }
                kernels_.embed(e, from, to, d, inside, slopes, 0, e.F, 0, 1);
                for (std::size_t l = 0; l < count; ++l) {
                    for (std::size_t u = 0; u < d; ++u) y[(b + l) * widest_ + u] = to[u * PANEL + l];
                }
            }
        }
        const std::vector<Category>& categories = s.columns->categories;
        for (std::size_t b = 0; b < n; ++b) {
            const std::int64_t* codes = table.codes + (first + b) * categories.size();
            float* to = y + b * widest_ + d;
            for (std::size_t c = 0; c < categories.size(); to += categories[c++].width) {
                write_category(categories[c], s.tables[c], codes[c], to, 1);
            }
        }
    }

    const Program program_;
    const Kernels& kernels_;
    const bool all_threads_;
    mutable ThreadPool pool_;
    mutable std::atomic_flag busy_;
    // Modified only while the flag is held: tuners for calls with several blocks and with one block, by powers of two
    // of their rows, and the end of the last call.
    mutable std::array<std::array<ThreadTuner, std::numeric_limits<std::size_t>::digits + 1>, 2> tuners_;
    mutable Clock::time_point last_{};
    Floats store_;
    std::size_t used_ = 0;
    std::vector<Step> steps_;
    std::size_t products_ = 0;  // multiply-adds per row
    std::size_t widest_ = 0, panel_ = 0, depth_ = 0;
};

}  // namespace

std::unique_ptr<PredictionCore> make_prediction_core(const Program& program, std::span<const float* const> parameters,
                                                     std::span<const float* const> buffers, std::size_t threads,
                                                     const std::string& isa, bool all_threads) {
    return std::make_unique<PackedCore>(program, parameters, buffers, threads, kernels_named(isa), all_threads);
}

}  // namespace multilayer
