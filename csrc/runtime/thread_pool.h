// A pool of persistent threads. A call runs on several of them at the same time, and they synchronize at barriers.
//
// Workers spin for a short time after a call, because the next call usually follows soon, and then sleep. Threads at a
// barrier do the same. Each core has its own pool, so that several Python threads can use different cores at the same
// time. A pool starts workers when they are first needed, and again in a forked child, where they do not exist. If the
// system refuses a thread, the existing threads do the work: results do not depend on their number.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace multilayer {

// Returns the part of n items for a thread, split at multiples of `grain`.
struct Range {
    std::size_t first, end;
};

inline Range share_of(std::size_t n, std::size_t grain, std::size_t thread, std::size_t threads) {
    const std::size_t pieces = (n + grain - 1) / grain;
    const auto cut = [&](std::size_t t) { return std::min(n, pieces * t / threads * grain); };
    return {cut(thread), cut(thread + 1)};
}

class ThreadPool {
public:
    explicit ThreadPool(std::size_t threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    std::size_t threads() const { return threads_; }

    // Returns how many of n threads are available, and starts them: n, or fewer if the system refuses. n <= threads().
    std::size_t ready(std::size_t n);

    // Calls work(thread) on threads 0 .. n - 1, where 0 is the calling thread. Returns when all have finished, and
    // throws an exception that one of them threw. n is a result of `ready`. Work that uses barriers must not throw,
    // because the other threads would wait indefinitely.
    void run(std::size_t n, const std::function<void(std::size_t)>& work);

    // Within a run on n > 1 threads: waits for all threads. Writes before the barrier are visible to all threads after
    // it.
    void barrier(std::size_t n);

private:
    struct Workers;

    std::size_t threads_;
    std::unique_ptr<Workers> workers_;
    alignas(64) std::atomic<std::uint32_t> waiting_{0};
    alignas(64) std::atomic<std::uint32_t> turn_{0};
};

}  // namespace multilayer
