// The data of a fused core: the operations of a program as nodes over values, and the memory of each.
//
// A value is a batch of rows in panels (panels, d, 16). In the backward pass, its gradient mostly replaces it.
// Element-wise operations (activations, dropout, the sum at the end of a residual block) change a value in place. Other
// operations create a new value.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/kernels.h"
#include "program.h"
#include "runtime/aligned_floats.h"

namespace multilayer {

// The position of a parameter in the arrays of all parameters. Matrices are stored in strips, others as one row.
struct Tensor {
    Strips shape{1, 0};
    std::size_t offset = 0;
    bool matrix = false;
};

// Returns the tensors of all parameters in program order, and sets `total` to the length of the array.
std::vector<Tensor> lay_out(const Program& program, std::size_t& total);

struct Value {
    std::size_t d = 0;
    float* x = nullptr;
    float* g = nullptr;
};

struct Node {
    Kind kind = Kind::linear;
    const Op* op = nullptr;
    const Op* dropout = nullptr;      // dropout after an activation, or alone
    std::size_t in = 0, out = 0;      // values; equal for in-place operations
    std::size_t other = 0;            // enter, leave: the value that skips the block
    bool passes = false;              // whether the gradient of `in` is needed
    bool learns = false;              // whether the node has parameters
    bool with_next = false;           // pointwise: computed block by block with the previous linear layer in forward,
    bool with_later = false;          // and with the next linear layer in backward
    std::size_t counted_at = 0;       // pointwise: place of its units in Core::unit_counts, if op->counted has a bound
    // Kept from the forward to the backward pass, each (panels, ..., 16).
    float *slope = nullptr, *d_learned = nullptr, *d_blend = nullptr;  // pointwise
    float *hat = nullptr, *inverse = nullptr;                          // norms
    float* z = nullptr;                                                // glu: both halves, then their slopes, then δ
    float *inside = nullptr, *slopes = nullptr;                        // columns
    float* rows = nullptr;                                             // linear, glu: the inputs as rows in strips
    std::vector<float> mean, scale, variance;                          // batch_norm: of this batch
};

// The nodes of a program. It owns no memory.
struct MemoryPlan {
    explicit MemoryPlan(const Program& program);

    std::vector<Value> values;
    std::vector<Node> nodes;
    std::size_t last = 0;  // the value of the outputs
    bool raw = false;      // whether the first linear layer reads the gathered rows directly
    std::size_t counts = 0;  // length of Core::unit_counts

    // Returns the number of floats for `panels` panels. If `memory` is given, sets the pointers of all nodes into it.
    std::size_t place(std::size_t panels, const Program& program, const Kernels& kernels, float* memory);
};

}  // namespace multilayer
