// Cancellation of long calls: a call regularly asks a function whether to stop, on its own thread and also within a
// step.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

namespace multilayer {

// Returns whether the call should end. It may have to wait for a lock that other threads hold.
using StopRequested = std::function<bool()>;

// Forward multiply-adds that take some milliseconds on one thread. Longer steps check for stop requests within the
// step.
constexpr std::size_t POLLED_PRODUCTS = 100'000'000;

// Thrown by plain loops after a stop request.
struct Stopped {};

// Checks for a stop request at most every 20 ms. Use it on one thread only.
class StopPoll {
public:
    explicit StopPoll(const StopRequested& stop) : stop_(stop) {}

    // Returns whether to stop. Once true, it stays true.
    bool requested() {
        if (requested_ || Clock::now() - last_ < EVERY) return requested_;
        requested_ = stop_();
        last_ = Clock::now();
        return requested_;
    }

    void throw_if_requested() {
        if (requested()) throw Stopped{};
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds EVERY{20};

    const StopRequested& stop_;
    Clock::time_point last_ = Clock::now();
    bool requested_ = false;
};

}  // namespace multilayer
