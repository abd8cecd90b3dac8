// Worker threads, which spin, then yield and then sleep, and the barrier.
#include "runtime/thread_pool.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__) || defined(__APPLE__)
#include <unistd.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace multilayer {
namespace {

inline void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
    __asm__ volatile("yield");
#endif
}

// Waits until the value changes: spins for about 20 µs, yields for about another millisecond, and then sleeps.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
    for (int i = 0; i < 500; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        pause();
    }
    // The awaited thread may have lost its core to this thread. A yield is cheap if no other thread is ready to run,
    // and otherwise lets it run. Waking from sleep takes longer than most phases of a step.
    for (int i = 0; i < 1000; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        std::this_thread::yield();
    }
    value.wait(old, std::memory_order_acquire);
}

std::int64_t process() {
#if defined(__linux__) || defined(__APPLE__)
    return getpid();
#else
    return 0;
#endif
}

}  // namespace

struct ThreadPool::Workers {
    // Each worker waits for its own call counter: workers that a call does not need keep sleeping, and no thread waits
    // for them.
    struct Worker {
        alignas(64) std::atomic<std::uint32_t> call{0};
        std::thread thread;

        void wake() {
            call.fetch_add(1, std::memory_order_release);
            call.notify_one();
        }
    };

    std::int64_t owner = process();
    std::vector<std::unique_ptr<Worker>> others;
    const std::function<void(std::size_t)>* work = nullptr;
    bool leave = false;
    std::atomic<std::uint32_t> busy{0};
    std::mutex failing;
    std::exception_ptr failed;

    void take(std::size_t thread) noexcept {
        try {
            (*work)(thread);
        } catch (...) {
            const std::lock_guard lock(failing);
            failed = std::current_exception();
        }
    }

    void serve(std::size_t thread, const Worker& mine) {
        for (std::uint32_t seen = 0;; ++seen) {
            wait_while(mine.call, seen);
            if (leave) return;
            take(thread);
            if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) busy.notify_one();
        }
    }
};

ThreadPool::ThreadPool(std::size_t threads) : threads_(std::max<std::size_t>(1, threads)) {}

ThreadPool::~ThreadPool() {
    if (!workers_) return;
    if (workers_->owner != process()) {
        (void)workers_.release();  // in a forked child: the threads belong to the parent and cannot be joined
        return;
    }
    workers_->leave = true;
    for (const auto& worker : workers_->others) worker->wake();
    for (const auto& worker : workers_->others) worker->thread.join();
}

std::size_t ThreadPool::ready(std::size_t n) {
    if (n <= 1) return 1;
    if (workers_ && workers_->owner != process()) (void)workers_.release();
    if (!workers_) {
        workers_ = std::make_unique<Workers>();
        waiting_ = 0;
    }
    Workers& w = *workers_;
    w.others.reserve(n - 1);
    try {
        for (std::size_t i = w.others.size() + 1; i < n; ++i) {
            auto worker = std::make_unique<Workers::Worker>();
            worker->thread = std::thread([&w, i, &mine = *worker] { w.serve(i, mine); });
            w.others.push_back(std::move(worker));
        }
    } catch (const std::system_error&) {
        return w.others.size() + 1;
    }
    return n;
}

void ThreadPool::run(std::size_t n, const std::function<void(std::size_t)>& work) {
    if (n <= 1) return work(0);
    Workers& w = *workers_;
    w.work = &work;
    w.failed = nullptr;
    w.busy.store(static_cast<std::uint32_t>(n - 1), std::memory_order_relaxed);
    for (std::size_t i = 0; i < n - 1; ++i) w.others[i]->wake();
    w.take(0);
    for (std::uint32_t left; (left = w.busy.load(std::memory_order_acquire)) != 0;) wait_while(w.busy, left);
    if (w.failed) std::rethrow_exception(w.failed);
}

void ThreadPool::barrier(std::size_t n) {
    const std::uint32_t turn = turn_.load(std::memory_order_relaxed);
    if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == n) {
        waiting_.store(0, std::memory_order_relaxed);
        turn_.store(turn + 1, std::memory_order_release);
        turn_.notify_all();
    } else {
        wait_while(turn_, turn);
    }
}

}  // namespace multilayer
