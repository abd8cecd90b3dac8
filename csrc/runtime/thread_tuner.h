// How many threads steps go fastest on, found while they run. A meeting of threads costs a twentieth of a microsecond on
// idle cores and a turn of the scheduler where others want them too, so no rule made beforehand holds on both; and
// results do not depend on the number.
//
// Numbers tried are 1, 2, 4, … and the most. The best so far is used, and its neighbours are tried again now and then: soon
// after they won or the best has become slower, more and more rarely while they lose, and the more so the more clearly.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

namespace multilayer {

// Multiply-adds of a way forward that is soon done: threads may wait longer than they work.
constexpr std::size_t TUNED_PRODUCTS = 20'000'000;

class ThreadTuner {
public:
    // Threads for the next call, at most so many; `batch` is that of whole steps. What was found for another does not count;
    // a call of one smaller step changes nothing.
    std::size_t next(std::size_t most, std::size_t batch) {
        if (most > most_ || batch != batch_) *this = ThreadTuner(most, batch);
        now_ = best_;
        if (seconds_[best_] > 0.0 && --left_ == 0) {
            up_ = best_ == 0 || (!up_ && best_ + 1 < seconds_.size());
            if (seconds_.size() > 1) now_ = up_ ? best_ + 1 : best_ - 1;
            left_ = between_;
        }
        return std::min({std::size_t{1} << now_, most_, most});
    }

    // What each step of that call took. Not told of calls too short to tell.
    void record(double seconds) {
        const bool slower = seconds_[now_] > 0.0 && seconds > CLEARLY * seconds_[now_];
        seconds_[now_] = seconds;
        if (now_ != best_) {
            const std::size_t neighbours = (best_ > 0) + (best_ + 1 < seconds_.size());
            if (seconds < seconds_[best_]) {
                use(now_);
            } else if (++lost_ >= neighbours) {
                between_ = std::min((seconds > CLEARLY * seconds_[best_] ? 8 : 2) * between_, LATE);
            }
            left_ = between_;
        } else {
            if (slower) use(best_), left_ = 1;
            for (std::size_t i = 0; i < seconds_.size(); ++i) {
                if (seconds_[i] > 0.0 && seconds_[i] < seconds_[best_]) use(i);
            }
        }
    }

    // Whether the call that `next` was asked for tries another number than the best so far: it need not be long.
    bool trying() const { return now_ != best_; }

    ThreadTuner() : ThreadTuner(1, 0) {}

private:
    static constexpr std::size_t SOON = 4, LATE = 64;  // calls
    static constexpr double CLEARLY = 1.25;            // as long: more than chance

    ThreadTuner(std::size_t most, std::size_t batch)
    : most_(most), batch_(batch), seconds_(std::bit_width(most - 1) + 1), best_(seconds_.size() - 1) {}

    void use(std::size_t best) {
        best_ = best, lost_ = 0, left_ = between_ = SOON;
    }

    std::size_t most_, batch_;
    std::vector<double> seconds_;  // by exponent of two; 0 where never tried
    std::size_t best_, now_ = 0;
    std::size_t lost_ = 0;         // trials since the best was found
    std::size_t between_ = SOON, left_ = 1;
    bool up_ = true;
};

}  // namespace multilayer
