// Detection of instruction sets and CPU limits, and timed runs of the microbenchmarks.
#include "runtime/machine.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

#include "runtime/simd.h"

namespace multilayer {

// ---- instruction sets ----

namespace {

enum Register { eax, ebx, ecx, edx };

// The CPUID bit of an instruction set on x86, and the vector state that the system must save for it.
struct Feature {
    const char* name;
    std::uint32_t leaf, subleaf;
    Register reg;
    int bit;
    std::uint64_t state;
};

constexpr std::uint64_t SSE_STATE = 0, AVX_STATE = 0x6, AVX512_STATE = 0xE6;
constexpr Feature FEATURES[] = {
    {"sse2", 1, 0, edx, 26, SSE_STATE},           {"sse3", 1, 0, ecx, 0, SSE_STATE},
    {"ssse3", 1, 0, ecx, 9, SSE_STATE},           {"sse4_1", 1, 0, ecx, 19, SSE_STATE},
    {"sse4_2", 1, 0, ecx, 20, SSE_STATE},         {"avx", 1, 0, ecx, 28, AVX_STATE},
    {"f16c", 1, 0, ecx, 29, AVX_STATE},           {"fma", 1, 0, ecx, 12, AVX_STATE},
    {"avx2", 7, 0, ebx, 5, AVX_STATE},            {"avx512f", 7, 0, ebx, 16, AVX512_STATE},
    {"avx512dq", 7, 0, ebx, 17, AVX512_STATE},    {"avx512bw", 7, 0, ebx, 30, AVX512_STATE},
    {"avx512vl", 7, 0, ebx, 31, AVX512_STATE},    {"avx512_vnni", 7, 0, ecx, 11, AVX512_STATE},
    {"avx512_bf16", 7, 1, eax, 5, AVX512_STATE},
};

}  // namespace

std::vector<std::string> instruction_sets() {
    if (simd::NEON) return {"neon"};
    std::vector<std::string> names;
    const bool os_tells = simd::cpuid(1, 0)[ecx] >> 27 & 1;
    const std::uint64_t saved = os_tells ? simd::xgetbv() : 0;
    for (const Feature& f : FEATURES) {
        const bool present = simd::cpuid(f.leaf, f.subleaf)[f.reg] >> f.bit & 1;
        if (present && (saved & f.state) == f.state) names.emplace_back(f.name);
    }
    return names;
}

std::vector<const Microbenchmark*> microbenchmarks() {
    const std::vector<std::string> sets = instruction_sets();
    std::vector<const Microbenchmark*> usable;
#define ISA(name) &name::microbenchmark,
    for (const Microbenchmark* loops : {MULTILAYER_ISAS}) {
#undef ISA
        const bool runs = std::all_of(loops->needs, loops->needs + loops->n_needs, [&sets](const char* set) {
            return std::find(sets.begin(), sets.end(), set) != sets.end();
        });
        if (runs) usable.push_back(loops);
    }
    return usable;
}

// ---- threads ----

namespace {

namespace fs = std::filesystem;
constexpr double UNLIMITED = std::numeric_limits<double>::infinity();

// Returns quota / period. A quota that is "max", negative or missing means no limit.
double ratio(std::istream&& quota_in, std::istream&& period_in) {
    double quota = 0, period = 0;
    return quota_in >> quota && period_in >> period && quota > 0 && period > 0 ? quota / period : UNLIMITED;
}

double limit_of_group(const fs::path& group) {
    std::ifstream both(group / "cpu.max");  // cgroup version 2
    if (both) {
        std::string quota, period;
        both >> quota >> period;
        return ratio(std::istringstream(quota), std::istringstream(period));
    }
    return ratio(std::ifstream(group / "cpu.cfs_quota_us"), std::ifstream(group / "cpu.cfs_period_us"));
}

// The lowest limit from a group up to the mount of its hierarchy. A group may not exceed its parents.
double limit_along(const fs::path& mount, const fs::path& group) {
    double limit = limit_of_group(mount);
    fs::path here = mount;
    for (const fs::path& part : group.relative_path()) {
        here /= part;
        limit = std::min(limit, limit_of_group(here));
    }
    return limit;
}

std::size_t cpus_of_affinity() {
#if defined(__linux__)
    // The set grows until it holds the mask of the kernel. Sizes above CPU_SETSIZE need a dynamically allocated set.
    for (std::size_t cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
        const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus), [](cpu_set_t* p) { CPU_FREE(p); });
        if (sched_getaffinity(0, bytes, set.get()) == 0) return static_cast<std::size_t>(CPU_COUNT_S(bytes, set.get()));
    }
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

double cpu_quota(const std::string& root) {
    const fs::path mount = fs::path(root) / "sys/fs/cgroup";
    std::ifstream groups(fs::path(root) / "proc/self/cgroup");
    double limit = UNLIMITED;
    for (std::string line; std::getline(groups, line);) {  // hierarchy:controllers:/path
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const fs::path group = line.substr(second + 1);
        if (controllers.empty()) {  // cgroup version 2
            limit = std::min(limit, limit_along(mount, group));
        } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
            limit = std::min(limit, limit_along(mount / "cpu", group));
        }
    }
    return limit;
}

std::size_t usable_threads() {
    if (const char* text = std::getenv("MULTILAYER_THREADS"); text && *text) {
        const char* end = text + std::strlen(text);
        std::size_t threads = 0;
        const auto [parsed, error] = std::from_chars(text, end, threads);
        if (error != std::errc{} || parsed != end || threads < 1 || threads > MAX_THREADS) {
            throw std::invalid_argument("MULTILAYER_THREADS must be an integer from 1 to " +
                                        std::to_string(MAX_THREADS) + ", got '" + text + "'");
        }
        return threads;
    }
    const auto cpus = static_cast<double>(cpus_of_affinity());
    // Round up: two threads use a quota of 1.5 CPUs better than one thread does.
    return static_cast<std::size_t>(std::clamp(std::ceil(cpu_quota("/")), 1.0, cpus));
}

// ---- rates ----

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point start, Clock::time_point end) {
    return std::chrono::duration<double>(end - start).count();
}

// A reusable barrier for `threads` threads. They spin, because waking a sleeping thread would take longer than a round.
class Gate {
public:
    explicit Gate(std::size_t threads) : threads_(threads) {}

    void pass() {
        const std::size_t turn = turn_.load();
        if (waiting_.fetch_add(1) + 1 == threads_) {
            waiting_.store(0);
            turn_.store(turn + 1);
        } else {
            while (turn_.load() == turn) std::this_thread::yield();
        }
    }

private:
    const std::size_t threads_;
    std::atomic<std::size_t> waiting_{0}, turn_{0};
};

// Measures the seconds of one work(thread) on all threads at the same time, after prepare(thread) on each thread.
// Returns the shortest of the rounds that fit in `seconds`. A round repeats the work until it is long enough to time.
template <class Prepare, class Work>
double shortest(std::size_t threads, double seconds, Prepare prepare, Work work) {
    constexpr double ROUND = 2e-3;
    Gate gate(threads);
    std::size_t repeats = 1;
    double best = std::numeric_limits<double>::infinity();
    bool done = false;
    std::vector<Clock::time_point> ends(threads);

    const auto run = [&](std::size_t thread) {
        prepare(thread);
        gate.pass();
        const Clock::time_point begin = Clock::now();
        while (!done) {
            const Clock::time_point start = Clock::now();
            for (std::size_t i = 0; i < repeats; ++i) work(thread);
            ends[thread] = Clock::now();
            gate.pass();
            if (thread == 0) {  // the other threads wait at the next gate
                const double elapsed = seconds_between(start, *std::max_element(ends.begin(), ends.end()));
                if (elapsed < ROUND) {
                    repeats *= 2;
                } else {
                    best = std::min(best, elapsed / static_cast<double>(repeats));
                }
                done = std::isfinite(best) && seconds_between(begin, Clock::now()) >= seconds;
            }
            gate.pass();
        }
    };

    // Threads wait until all have started. If one cannot be started, the others leave instead of waiting at the gate.
    std::atomic<int> order{0};  // 0 wait, 1 run, 2 leave
    std::vector<std::jthread> others;
    const auto give = [&order](int value) { order.store(value), order.notify_all(); };
    try {
        for (std::size_t thread = 1; thread < threads; ++thread) {
            others.emplace_back([&, thread] {
                order.wait(0);
                if (order.load() == 1) run(thread);
            });
        }
    } catch (...) {
        give(2);
        throw;
    }
    give(1);
    run(0);
    return best;
}

// Uninitialized floats, aligned to a cache line. The thread that first writes them decides in which memory they are.
struct Free {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using Buffer = std::unique_ptr<float[], Free>;

Buffer buffer(std::size_t n) {
    return Buffer(static_cast<float*>(::operator new[](n * sizeof(float), std::align_val_t{64})));
}

void check(std::size_t threads, double seconds) {
    if (threads < 1 || threads > MAX_THREADS) {
        throw std::invalid_argument("threads must be from 1 to " + std::to_string(MAX_THREADS) + ", got " +
                                    std::to_string(threads));
    }
    if (!(seconds >= 0.0 && seconds <= 60.0)) {
        throw std::invalid_argument("seconds must be from 0 to 60, got " + std::to_string(seconds));
    }
}

// Measures the GB/s of pass(n, data) over `arrays` arrays of n floats in one buffer per thread, with `bytes` over all
// threads.
template <class Pass>
double bandwidth(std::size_t bytes, std::size_t threads, double seconds, std::size_t arrays, Pass pass) {
    check(threads, seconds);
    const std::size_t least = threads * arrays * MICROBENCHMARK_BLOCK * sizeof(float);
    if (bytes < least) {
        throw std::invalid_argument("bytes must be at least " + std::to_string(least) + " for " +
                                    std::to_string(threads) + " threads, got " + std::to_string(bytes));
    }
    const std::size_t n = bytes / (threads * arrays * sizeof(float)) / MICROBENCHMARK_BLOCK * MICROBENCHMARK_BLOCK;
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < threads; ++i) buffers.push_back(buffer(arrays * n));
    const double time = shortest(
        threads, seconds, [&](std::size_t thread) { std::fill_n(buffers[thread].get(), arrays * n, 1.0f); },
        [&](std::size_t thread) { pass(n, buffers[thread].get()); });
    return static_cast<double>(threads * arrays * n * sizeof(float)) / time * 1e-9;
}

}  // namespace

double matrix_peak(std::size_t threads, double seconds) {
    check(threads, seconds);
    const Microbenchmark& loops = *microbenchmarks().back();
    // As in a blocked matrix product: one panel of b stays in the first-level cache, and 16 panels of a come from the
    // second-level cache.
    constexpr std::size_t PANEL = 4096, PANELS = 16;
    const std::size_t depth = PANEL / loops.columns;
    const std::size_t size_a = depth * loops.rows, size_b = depth * loops.columns, size_c = loops.rows * loops.columns;
    const std::size_t size = PANELS * (size_a + size_c) + size_b;
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < threads; ++i) buffers.push_back(buffer(size));
    const double time = shortest(
        threads, seconds, [&](std::size_t thread) { std::fill_n(buffers[thread].get(), size, 0.5f); },
        [&](std::size_t thread) {
            float* b = buffers[thread].get();
            float* a = b + size_b;
            float* c = a + PANELS * size_a;
            for (std::size_t i = 0; i < PANELS; ++i) loops.tile(depth, a + i * size_a, b, c + i * size_c);
        });
    return static_cast<double>(threads * PANELS * 2 * size_c * depth) / time * 1e-9;
}

double read_bandwidth(std::size_t bytes, std::size_t threads, double seconds) {
    const Microbenchmark& loops = *microbenchmarks().back();
    return bandwidth(bytes, threads, seconds, 1, [&loops](std::size_t n, const float* x) {
        float partial[MICROBENCHMARK_BLOCK];
        loops.sum(n, x, partial);
    });
}

double triad_bandwidth(std::size_t bytes, std::size_t threads, double seconds) {
    const Microbenchmark& loops = *microbenchmarks().back();
    return bandwidth(bytes, threads, seconds, 3, [&loops](std::size_t n, float* y) {
        loops.triad(n, y, y + n, y + 2 * n, 0.5f);
    });
}

}  // namespace multilayer
