// Prediction alone: a program's operations with weights packed for it, and nothing of training.
//
// Rows go through in blocks, each thread taking the next block that is left. A block that comes alone is shared out by units,
// where calls follow one another at once. Several threads may call: the first has the other threads, the rest go alone. A
// row's outputs are the bits that a training core's `outputs` gives, whether it comes by itself or among others.
//
// Memory: the parameters, and for each thread that has called a block of rows of the widest value, twice and once more for
// each residual block around it, and a panel for norms and embeddings.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "program.h"

namespace multilayer {

class PredictionCore {
public:
    virtual ~PredictionCore() = default;

    // Raw outputs (n, d_out) of rows first .. first + n - 1 of the table; of some of them where it was asked to end.
    virtual void outputs(const Table<float>& table, std::size_t first, std::size_t n, float* out,
                         const StopRequested& stop) const = 0;

    // What it holds, and what a thread that calls takes.
    virtual std::size_t bytes() const = 0;
};

// Parameters and buffers by their place in the program; `isa` and `all_threads` as in make_fused.
std::unique_ptr<PredictionCore> make_prediction_core(const Program& program, std::span<const float* const> parameters,
                                                     std::span<const float* const> buffers, std::size_t threads,
                                                     const std::string& isa = "", bool all_threads = false);

}  // namespace multilayer
