// How a long call is asked to end: by a function that it calls now and then on its own thread, also within a step.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

namespace multilayer {

// Whether the call should end. An answer may need a lock that others hold.
using Stop = std::function<bool()>;

// Multiply-adds of a way forward that takes some milliseconds on one thread: it is asked within it.
constexpr std::size_t WATCHED = 100'000'000;

// Thrown out of plain loops that were asked to end.
struct Stopped {};

// Asks every 20 ms. Of one thread.
class Watch {
public:
    explicit Watch(const Stop& stop) : stop_(stop) {}

    // Once true, always true.
    bool over() {
        if (over_ || Clock::now() - last_ < EVERY) return over_;
        over_ = stop_();
        last_ = Clock::now();
        return over_;
    }

    void look() {
        if (over()) throw Stopped{};
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds EVERY{20};

    const Stop& stop_;
    Clock::time_point last_ = Clock::now();
    bool over_ = false;
};

}  // namespace multilayer
