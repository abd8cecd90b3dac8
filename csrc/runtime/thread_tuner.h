// Finds the fastest number of threads while steps run. A barrier takes 50 ns on idle cores, and a time slice of the
// scheduler if other processes use them. No fixed rule is right in both cases. Results do not depend on the number of
// threads.
//
// The candidates are 1, 2, 4, … and the maximum. The best candidate so far is used, and its neighbors are tried again
// from time to time: soon after they won or after the best became slower, and more and more rarely while they lose. The
// more clearly they lose, the more rarely they are tried.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

namespace multilayer {

// Forward multiply-adds of a short step, in which threads may wait longer than they work.
constexpr std::size_t TUNED_PRODUCTS = 20'000'000;

class ThreadTuner {
public:
    // Returns the number of threads for the next call, at most `most`. `batch` is the number of rows of a full step.
    // Measurements for another batch size are discarded, but a call with a smaller step changes nothing.
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

    // Records the seconds per step of that call. Calls that are too short to time are not recorded.
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

    // Whether the last result of `next` is a trial of another number of threads. A trial may be short.
    bool trying() const { return now_ != best_; }

    ThreadTuner() : ThreadTuner(1, 0) {}

private:
    static constexpr std::size_t SOON = 4, LATE = 64;  // calls
    static constexpr double CLEARLY = 1.25;            // a time ratio above chance

    ThreadTuner(std::size_t most, std::size_t batch)
    : most_(most), batch_(batch), seconds_(std::bit_width(most - 1) + 1), best_(seconds_.size() - 1) {}

    void use(std::size_t best) {
        best_ = best, lost_ = 0, left_ = between_ = SOON;
    }

    std::size_t most_, batch_;
    std::vector<double> seconds_;  // by exponent of two; 0 if never tried
    std::size_t best_, now_ = 0;
    std::size_t lost_ = 0;         // trials since the best number was found
    std::size_t between_ = SOON, left_ = 1;
    bool up_ = true;
};

}  // namespace multilayer
