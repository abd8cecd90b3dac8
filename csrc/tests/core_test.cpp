// Tests of the core, for every network of networks.h:
//
//     bits      any number of threads; gradients and apply equal a step; prediction equals the outputs of a training core,
//               for one row or many and for concurrent calls; instruction sets whose multiply-add rounds once agree
//     numbers   float kernels agree with double loops up to rounding: loss, outputs, every gradient
//     counts    of inactive and flat rows of a step agree with double loops; a rounding may move one row over a bound
//     state     after a non-finite step, writing the state restores the core
//     threads   several cores at the same time; stopping between and within steps; a pool that sleeps and wakes; tuning of
//               the number of threads
//
// The exit code is 1 if a check fails, with a line for each failed check.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>

#include "fused/fused.h"
#include "kernels/kernels.h"
#include "predict/predict.h"
#include "reference/reference.h"
#include "runtime/denormals.h"
#include "runtime/thread_pool.h"
#include "runtime/thread_tuner.h"
#include "tests/networks.h"

namespace multilayer::tests {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t ROWS = 400, STEPS = 8;
constexpr std::size_t LONG = 600'000'000;    // multiply-adds of a step that stores its gradients and can be discarded
const StopRequested NEVER = [] { return false; };
int failures = 0;

void check(bool holds, const std::string& network, const std::string& what) {
    if (holds) return;
    ++failures;
    std::printf("%s: %s\n", network.c_str(), what.c_str());
}

template <class T>
void start(Core<T>& core, const Program& program) {
    const auto put = [&core](Group group, const std::vector<std::vector<float>>& tensors) {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const std::vector<T> values(tensors[i].begin(), tensors[i].end());
            core.write(group, i, values.data());
        }
    };
    put(Group::parameters, parameters_for(program));
    if (program.average >= 0.0) put(Group::averages, parameters_for(program));
    put(Group::buffers, buffers_for(program));
}

std::vector<std::int64_t> order(std::size_t n) {
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; i < n; ++i) rows.push_back(static_cast<std::int64_t>(i * 7 % ROWS));
    return rows;
}

std::size_t weights_of(const Program& program) {
    std::size_t sum = 0;
    for (const Op& op : program.ops) sum += op.kind == Kind::columns ? 0 : multiply_adds(op, program.numeric);
    return sum;
}

// Parameters and buffers, concatenated.
template <class T>
std::vector<T> state(const Core<T>& core, const Program& program) {
    std::vector<T> found;
    const auto add = [&](Group group, std::size_t place, std::size_t size) {
        found.resize(found.size() + size);
        core.read(group, place, found.data() + found.size() - size);
    };
    for (std::size_t i = 0; i < program.parameters.size(); ++i) add(Group::parameters, i, program.parameters[i].size);
    for (std::size_t i = 0; i < program.buffers.size(); ++i) add(Group::buffers, i, program.buffers[i]);
    return found;
}

// Everything that a core holds after STEPS steps, or as many as there are rows for, and the results of the steps.
template <class T>
std::vector<T> trained(Core<T>& core, const Program& program, const Table<T>& table, std::size_t batch, bool counts = false) {
    const std::vector<std::int64_t> rows = order(ROWS);
    const auto some = std::span(rows).first(std::min(ROWS, STEPS * batch));
    const Order steps{some, some, batch, 2};
    std::vector<double> loss(steps.steps()), norm(loss), rate(loss.size(), 0.01), decay(loss.size(), 0.1), dropout(loss.size(), 1.0);
    core.counts_units = counts;
    core.run(table, steps, {rate.data(), decay.data(), dropout.data()}, loss.data(), norm.data(), NEVER);
    std::vector<T> found;
    for (std::size_t i = 0; i < loss.size(); ++i) found.push_back(static_cast<T>(loss[i])), found.push_back(static_cast<T>(norm[i]));
    for (const double norm_of_tensor : core.statistics) found.push_back(static_cast<T>(norm_of_tensor));
    const std::vector<T> values = state(core, program);
    found.insert(found.end(), values.begin(), values.end());
    std::vector<T> z(ROWS * program.d_out);
    core.outputs(table, rows, program.average >= 0.0, z.data(), NEVER);
    found.insert(found.end(), z.begin(), z.end());
    return found;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Loss, outputs and every gradient of one step.
template <class T>
std::vector<T> slopes(Core<T>& core, const Program& program, const Table<T>& table, std::size_t batch) {
    const std::vector<std::int64_t> rows = order(batch);
    std::vector<std::vector<T>> gradients, buffers;
    std::vector<T*> into, values;
    for (const Parameter& p : program.parameters) gradients.emplace_back(p.size);
    for (const std::size_t size : program.buffers) buffers.emplace_back(size);
    for (auto& g : gradients) into.push_back(g.data());
    for (auto& b : buffers) values.push_back(b.data());
    std::vector<T> found{static_cast<T>(core.gradients(table, {rows, rows, batch, 1}, 1.0, into, values, NEVER))};
    std::vector<T> z(batch * program.d_out);
    core.outputs(table, rows, false, z.data(), NEVER);
    found.insert(found.end(), z.begin(), z.end());
    for (const auto& g : gradients) found.insert(found.end(), g.begin(), g.end());
    return found;
}

bool has_batch_norm(const Program& program) {
    return std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) { return op.kind == Kind::batch_norm; });
}

void bits(const Network& network) {
    const Program& program = network.program;
    const Rows<float> rows = rows_for<float>(program, ROWS);
    std::vector<float> widest;
    std::vector<std::int64_t> widest_counts;
    for (const std::string& isa : fused_kernels()) {
        for (const std::size_t batch : {1, 7, 64, 150}) {
            if (batch == 1 && has_batch_norm(program)) continue;
            const auto run = [&](std::size_t threads) {
                const auto core = make_fused(program, threads, isa, true);
                start(*core, program);
                return trained(*core, program, rows.table, batch);
            };
            const std::vector<float> one = run(1);
            const auto counted = [&](std::size_t threads) {
                const auto core = make_fused(program, threads, isa, true);
                start(*core, program);
                check(same(one, trained(*core, program, rows.table, batch, true)), network.name, isa + ": counting units changes bits");
                return core->unit_counts;
            };
            const std::vector<std::int64_t> counts = counted(1);
            check(counts == counted(3), network.name, isa + ": the number of threads changes the counts of units");
            for (const std::size_t threads : {2, 3, 8}) check(same(one, run(threads)), network.name, isa + ": the number of threads changes bits");
            if (batch != 64) continue;
            if (isa == "avx2") widest = one, widest_counts = counts;
            if (isa != "avx512") continue;
            check(same(one, widest) && counts == widest_counts, network.name, "avx512 and avx2 differ");
        }
    }
}

// Tests cores and programs that tune their number of threads: calls with many steps, split where another number is
// tried.
void tuned(const Network& network) {
    const Program& program = network.program;
    const Rows<float> rows = rows_for<float>(program, ROWS);
    const auto run = [&](std::size_t threads) {
        const auto core = make_fused(program, threads);
        start(*core, program);
        const std::vector<std::int64_t> places = order(40 * 32);
        std::vector<double> loss(40), norm(40);
        const std::vector<double> rate(40, 0.001), decay(40, 0.1), dropout(40, 1.0);
        std::vector<float> found;
        for (int call = 0; call < 3; ++call) {
            core->run(rows.table, {places, places, 32, 2}, {rate.data(), decay.data(), dropout.data()}, loss.data(),
                      norm.data(), NEVER);
            found.insert(found.end(), loss.begin(), loss.end());
            found.insert(found.end(), norm.begin(), norm.end());
        }
        const std::vector<float> values = state(*core, program);
        found.insert(found.end(), values.begin(), values.end());
        return found;
    };
    check(same(run(1), run(3)), network.name, "a call that is split into pieces has other bits");

    const auto parameters = parameters_for(program), buffers = buffers_for(program);
    std::vector<const float*> values, kept;
    for (const auto& p : parameters) values.push_back(p.data());
    for (const auto& b : buffers) kept.push_back(b.data());
    const auto one = make_prediction_core(program, values, kept, 1), several = make_prediction_core(program, values, kept, 2);
    std::vector<float> expected(ROWS * program.d_out), z(ROWS * program.d_out);
    one->outputs(rows.table, 0, ROWS, expected.data(), NEVER);
    for (std::size_t call = 0; call < 60; ++call) {
        const std::size_t n = 1 + call % 9;
        several->outputs(rows.table, call, n, z.data(), NEVER);
        const float* there = expected.data() + call * program.d_out;
        check(std::equal(there, there + n * program.d_out, z.data()), network.name, "repeated calls differ");
    }
}

void prediction(const Network& network) {
    const Program& program = network.program;
    const Rows<float> rows = rows_for<float>(program, ROWS);
    const auto parameters = parameters_for(program), buffers = buffers_for(program);
    std::vector<const float*> values, kept;
    for (const auto& p : parameters) values.push_back(p.data());
    for (const auto& b : buffers) kept.push_back(b.data());
    std::vector<std::int64_t> everything;
    for (std::size_t i = 0; i < ROWS; ++i) everything.push_back(static_cast<std::int64_t>(i));
    for (const std::string& isa : fused_kernels()) {
        const auto core = make_fused(program, 2, isa, true);
        start(*core, program);
        std::vector<float> expected(ROWS * program.d_out);
        core->outputs(rows.table, everything, false, expected.data(), NEVER);
        const auto packed = make_prediction_core(program, values, kept, 3, isa, true);
        // With two threads, more layers are wide enough to be split.
        const auto pair = make_prediction_core(program, values, kept, 2, isa, true);
        const auto from = [&](std::size_t first, std::size_t n, const PredictionCore* by = nullptr) {
            std::vector<float> z(n * program.d_out);
            (by ? by : packed.get())->outputs(rows.table, first, n, z.data(), NEVER);
            const std::size_t at = first * program.d_out;
            return std::memcmp(z.data(), expected.data() + at, z.size() * sizeof(float)) == 0;
        };
        std::vector<char> good(4, 0);
        std::vector<std::thread> callers;
        for (std::size_t i = 0; i < good.size(); ++i) {
            callers.emplace_back([&, i] { good[i] = from(0, ROWS) && from(i, 1) && from(i, 50); });
        }
        for (std::thread& caller : callers) caller.join();
        for (const PredictionCore* by : {packed.get(), pair.get()}) {
            for (const std::size_t n : {1, 7, 48}) good.push_back(from(0, n, by));
        }
        for (const char g : good) check(g, network.name, isa + ": prediction differs from the outputs of a training core");
    }
}

void numbers(const Network& network) {
    if (!network.smooth) return;
    const Program& program = network.program;
    const auto exact = make_reference<double>(program);
    start(*exact, program);
    const std::vector<double> expected = slopes(*exact, program, rows_for<double>(program, ROWS).table, 70);
    double largest = 1.0;
    for (const double v : expected) largest = std::max(largest, std::abs(v));
    std::vector<std::string> kinds = fused_kernels();
    kinds.emplace_back("reference");
    for (const std::string& kind : kinds) {
        const auto core = kind == "reference" ? make_reference<float>(program) : make_fused(program, 2, kind, true);
        start(*core, program);
        const std::vector<float> found = slopes(*core, program, rows_for<float>(program, ROWS).table, 70);
        double worst = 0.0;
        for (std::size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(found[i]) - expected[i]));
        // A path has a few dozen roundings, sums have a hundred terms, and norms divide by at least 0.03.
        check(worst <= 1e-4 * largest, network.name, kind + " is " + std::to_string(worst) + " away from double");
    }
}

void counts(const Network& network) {
    const Program& program = network.program;
    const auto of = [&]<class T>(std::unique_ptr<Core<T>> core, std::size_t batch) {
        const Rows<T> rows = rows_for<T>(program, ROWS);
        const std::vector<std::int64_t> some = order(batch);
        const double rate = 0.0, one = 1.0;
        double loss = 0, norm = 0;
        start(*core, program);
        core->counts_units = true;
        core->run(rows.table, {some, some, batch, 1}, {&rate, &rate, &one}, &loss, &norm, NEVER);
        return core->unit_counts;
    };
    for (const std::size_t batch : {2, 70, 256}) {
        const std::vector<std::int64_t> expected = of(make_reference<double>(program), batch);
        for (const std::string& isa : fused_kernels()) {
            const std::vector<std::int64_t> found = of(make_fused(program, 2, isa, true), batch);
            check(found.size() == expected.size(), network.name, isa + ": the number of counts differs from double loops");
            std::int64_t worst = 0;
            for (std::size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
            check(worst <= 1, network.name, isa + ": counts differ from double loops by " + std::to_string(worst));
        }
    }
}

void steps(const Network& network) {
    const Program& program = network.program;
    const Rows<float> rows = rows_for<float>(program, ROWS);
    const auto one = make_fused(program, 2, "", true), other = make_fused(program, 3, "", true);
    start(*one, program), start(*other, program);
    const std::vector<float> expected = trained(*one, program, rows.table, ROWS / 2);
    const std::vector<std::int64_t> all = order(ROWS);
    for (std::size_t s = 0; s < 2; ++s) {
        const std::span<const std::int64_t> part{all.data() + s * ROWS / 2, ROWS / 2};
        std::vector<std::vector<float>> gradients, buffers;
        std::vector<float*> into, values;
        for (const Parameter& p : program.parameters) gradients.emplace_back(p.size);
        for (const std::size_t size : program.buffers) buffers.emplace_back(size);
        for (auto& g : gradients) into.push_back(g.data());
        for (auto& b : buffers) values.push_back(b.data());
        other->gradients(rows.table, {part, part, part.size(), 2}, 1.0, into, values, NEVER);
        const std::vector<const float*> g(into.begin(), into.end()), b(values.begin(), values.end());
        other->apply(g, b, 0.01, 0.1);
    }
    std::vector<float> z(ROWS * program.d_out);
    other->outputs(rows.table, all, program.average >= 0.0, z.data(), NEVER);
    check(std::memcmp(z.data(), &expected[expected.size() - z.size()], z.size() * sizeof(float)) == 0, network.name,
          "gradients and apply do not equal a step");
}

// Tests several cores in several threads, as with several fits in one process.
void side_by_side(const Network& network) {
    const Rows<float> rows = rows_for<float>(network.program, ROWS);
    std::vector<std::vector<float>> found(3);
    std::vector<std::thread> fits;
    for (auto& to : found) {
        fits.emplace_back([&] {
            const auto core = make_fused(network.program, 2, "", true);
            start(*core, network.program);
            to = trained(*core, network.program, rows.table, 50);
        });
    }
    for (std::thread& fit : fits) fit.join();
    check(same(found[0], found[1]) && same(found[0], found[2]), network.name, "cores affect each other");
}

// Tests that a run stopped between or within steps has the state after its complete steps, and can continue.
void stopping(const Network& network, std::size_t batch, std::size_t steps) {
    const Program& program = network.program;
    const Rows<float> rows = rows_for<float>(program, ROWS);
    std::vector<std::int64_t> many;
    for (std::size_t i = 0; i < steps * batch; ++i) many.push_back(static_cast<std::int64_t>(i % ROWS));
    std::vector<double> loss(steps), norm(steps), small(steps, 1e-3);
    const auto run = [&](Core<float>& core, std::size_t n, const StopRequested& stop) {
        const auto some = std::span<const std::int64_t>(many).first(n * batch);
        core.run(rows.table, {some, some, batch, 0}, {small.data(), small.data(), small.data()}, loss.data(), norm.data(), stop);
    };
    const auto whole = make_fused(program, 2, "", true);
    start(*whole, program);
    const auto began = Clock::now();
    run(*whole, steps, NEVER);
    const auto lasts = Clock::now() - began;
    for (const double share : {0.4, 0.8}) {
        const auto halted = make_fused(program, 2, "", true), plain = make_fused(program, 1);
        start(*halted, program), start(*plain, program);
        const auto from = Clock::now();
        run(*halted, steps, [&] { return Clock::now() - from >= lasts * share; });
        run(*plain, halted->step, NEVER);
        check(same(state(*halted, program), state(*plain, program)), network.name, "a stopped run has an incomplete step");
        run(*halted, 1, NEVER), run(*plain, 1, NEVER);
        check(same(state(*halted, program), state(*plain, program)), network.name, "a stopped core cannot continue");
    }
}

// Tests that writing the state removes all effects of a non-finite step, including in padding. An empty batch has a
// mean of NaN and changes nothing.
void recovery(const Network& network) {
    const Program& program = network.program;
    const Rows<float> rows = rows_for<float>(program, ROWS);
    const auto fresh = make_fused(program, 1), mended = make_fused(program, 1);
    start(*fresh, program), start(*mended, program);
    const std::vector<std::int64_t> some = order(24);
    double loss = 0, norm = 0, rate = std::nan("");
    mended->run(rows.table, {some, some, some.size(), 0}, {&rate, &rate, &rate}, &loss, &norm, NEVER);
    check(!mended->finite(), network.name, "a learning rate of NaN leaves finite parameters");
    start(*mended, program);
    for (const Group slot : {Group::slot0, Group::slot1}) {
        if (static_cast<std::size_t>(slot) - static_cast<std::size_t>(Group::slot0) >= program.optimizer.slots()) continue;
        for (std::size_t i = 0; i < program.parameters.size(); ++i) {
            mended->write(slot, i, std::vector<float>(program.parameters[i].size).data());
        }
    }
    mended->step = 0, mended->statistics.clear();
    check(mended->finite(), network.name, "the core is not finite after its state was written");
    check(same(trained(*fresh, program, rows.table, 24), trained(*mended, program, rows.table, 24)), network.name,
          "a core does not recover from a non-finite step");
    if (!has_batch_norm(program)) check(std::isnan(slopes(*fresh, program, rows.table, 0)[0]), network.name, "the loss of an empty batch is not NaN");
}

// Tests that a long step can be stopped, also if it has hardly any matrix products, and that it is undone.
void long_step_stops() {
    const Network network = streamed();
    const Rows<float> rows = rows_for<float>(network.program, ROWS);
    std::vector<std::int64_t> many;
    for (std::size_t i = 0; i < 50'000; ++i) many.push_back(static_cast<std::int64_t>(i % ROWS));
    const auto core = make_fused(network.program, 1);
    start(*core, network.program);
    double loss = 0, norm = 0, rate = 1e-3;
    core->run(rows.table, {many, many, many.size(), 0}, {&rate, &rate, &rate}, &loss, &norm, [] { return true; });
    check(core->step == 0, network.name, "a long step was not stopped");
}

// Tests that the tuner uses all threads on an idle machine, one on a busy machine, and then all again.
void tuning() {
    ThreadTuner tuner;
    const auto most_used = [&tuner](std::size_t calls, auto seconds) {
        std::vector<std::size_t> times(9);
        for (std::size_t i = 0; i < calls; ++i) {
            const std::size_t threads = tuner.next(6, 32);
            tuner.record(seconds(static_cast<double>(threads)));
            if (i >= calls / 2) ++times[threads];
        }
        return std::distance(times.begin(), std::max_element(times.begin(), times.end()));
    };
    const auto calm = [](double threads) { return 1.0 / threads; };
    const auto busy = [](double threads) { return threads; };
    check(most_used(40, calm) == 6, "tuner", "the threads of an idle machine are not used");
    check(most_used(40, busy) == 1, "tuner", "several threads are used on a busy machine");
    check(most_used(400, calm) == 6, "tuner", "threads are not used again");
    check(most_used(40, busy) == 1 && tuner.next(1, 32) == 1 && tuner.next(6, 32) <= 2, "tuner", "a short step is not ignored");
    check(tuner.next(6, 64) == 6, "tuner", "a result for one batch size is used for another");
    check(ThreadTuner().next(1, 32) == 1, "tuner", "a limit of one thread is not respected");
}

// Tests that denormals are 0 while they are flushed, nonzero while they are allowed, and that the mode is restored.
void denormals() {
    volatile float tenth = 0.1f, least = 1.2e-38f;
    const auto lives = [&] { return tenth * least > 0.0f; };
    const bool before = lives();
    {
        const FlushDenormals flushed;
        check(!lives(), "denormals", "denormals are not flushed");
        {
            const AllowDenormals allowed;
            check(lives(), "denormals", "denormals are not allowed");
        }
        check(!lives(), "denormals", "denormals are not flushed again");
    }
    check(lives() == before, "denormals", "the mode is not restored");
}

}  // namespace
}  // namespace multilayer::tests

int main() {
    using namespace multilayer::tests;
    denormals();
    tuning();
    long_step_stops();
    std::vector<Network> all = networks();
    for (Network& network : all) network.program.statistics_every = 2;
    for (const Network& network : all) {
        bits(network);
        prediction(network);
        tuned(network);
        numbers(network);
        counts(network);
        steps(network);
        recovery(network);
    }
    for (const Network& network : all) {
        if (network.name.starts_with("shared")) {
            side_by_side(network);
            stopping(network, ROWS, 150);
            stopping(network, LONG / weights_of(network.program), 1);
        }
    }
    std::printf("%zu networks, %d checks failed\n", all.size(), failures);
    return failures ? 1 : 0;
}
