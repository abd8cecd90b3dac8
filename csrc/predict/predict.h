// Prediction only: the operations of a program with weights packed for prediction.
//
// Rows are processed in blocks, and each thread takes the next block. A single block is split by units, if calls follow
// in quick succession. Several threads may call at the same time: the first call uses the other threads of the pool,
// and the rest run on their own thread only. The outputs of a row have the bits of `outputs` of a training core, for
// any number of rows.
//
// Memory: the parameters, and for each calling thread a block of rows of the largest width, twice, plus once for each
// level of residual blocks, plus a panel for norms and embeddings.
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

    // Writes the raw outputs (n, d_out) of rows first .. first + n - 1 of the table. After a stop request, some of them
    // are not written.
    virtual void outputs(const Table<float>& table, std::size_t first, std::size_t n, float* out,
                         const StopRequested& stop) const = 0;

    // Memory of the core, and of a thread that calls it.
    virtual std::size_t bytes() const = 0;
};

// Makes a prediction core. Parameters and buffers are in the order of the program. `isa` and `all_threads` are as in
// make_fused.
std::unique_ptr<PredictionCore> make_prediction_core(const Program& program, std::span<const float* const> parameters,
                                                     std::span<const float* const> buffers, std::size_t threads,
                                                     const std::string& isa = "", bool all_threads = false);

}  // namespace multilayer
