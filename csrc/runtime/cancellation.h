// How a long call is asked to end: by a function that it calls now and then on its own thread, also within a step.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

namespace multilayer {

// Whether the call should end. An answer may need a lock that others hold.
using StopRequested = std::function<bool()>;

// Multiply-adds of a way forward that takes some milliseconds on one thread: it is asked within it.
constexpr std::size_t POLLED_PRODUCTS = 100'000'000;

// Thrown out of plain loops that were asked to end.
struct Stopped {};

// Asks every 20 ms. Of one thread.
class StopPoll {
public:
    explicit StopPoll(const StopRequested& stop) : stop_(stop) {}

    // Once true, always true.
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
