// Threads that stay: a call is given to all of them at once, and they meet at barriers within it.
//
// Workers spin for a moment after a call, since the next chunk usually follows, and then sleep; a barrier does the same.
// Each core has a pool of its own, so that cores run side by side in several Python threads. A pool starts workers when
// they are first wanted, and again in a forked child, where they do not exist. Where the system refuses another thread,
// those that there are do the work: results do not depend on their number.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace multilayer {

// The part of n things that is a thread's, cut at multiples of `grain`.
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

    // How many of n threads there are, started by now: n, or as many as the system allows. n <= threads().
    std::size_t ready(std::size_t n);

    // work(thread) on threads 0 .. n - 1, the caller's own being 0; returns when all have, and throws what one of them
    // threw. n is what `ready` gave. Work that meets must not throw: others would wait for ever.
    void run(std::size_t n, const std::function<void(std::size_t)>& work);

    // Within a run on n > 1 threads: every thread waits for all others. What each wrote before is seen by all after.
    void barrier(std::size_t n);

private:
    struct Workers;

    std::size_t threads_;
    std::unique_ptr<Workers> workers_;
    alignas(64) std::atomic<std::uint32_t> waiting_{0};
    alignas(64) std::atomic<std::uint32_t> turn_{0};
};

}  // namespace multilayer
