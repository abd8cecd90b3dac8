// What a fused core works on: the program's operations as nodes over values, and where each keeps its numbers.
//
// A value is a batch of rows in panels (panels, d, 16); its gradient mostly takes its place on the way back. Operations
// on single numbers (activations, dropout, a sum at the end of a residual block) change a value in place; others make a
// new one.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/kernels.h"
#include "program.h"
#include "runtime/aligned_floats.h"

namespace multilayer {

// Where a parameter lies in each array of parameters: matrices in strips, others as one row.
struct Tensor {
    Strips shape{1, 0};
    std::size_t offset = 0;
    bool matrix = false;
};

// Tensors of all parameters in the program's order, and the length of the whole array.
std::vector<Tensor> lay_out(const Program& program, std::size_t& total);

struct Value {
    std::size_t d = 0;
    float* x = nullptr;
    float* g = nullptr;
};

struct Node {
    Kind kind = Kind::linear;
    const Op* op = nullptr;
    const Op* dropout = nullptr;      // with an activation, or alone
    std::size_t in = 0, out = 0;      // values; the same where the work is in place
    std::size_t other = 0;            // enter, leave: the value that goes around the block
    bool passes = false;              // whether something below needs the gradient of `in`
    bool learns = false;              // whether the node has parameters
    bool with_next = false;           // pointwise: done block by block with the linear map before it, and on the way
    bool with_later = false;          // back with the linear map after it
    // Kept from forward to backward, each (panels, ..., 16).
    float *slope = nullptr, *d_learned = nullptr, *d_blend = nullptr;  // pointwise
    float *hat = nullptr, *inverse = nullptr;                          // norms
    float* z = nullptr;                                                // glu: both halves, then their slopes, then δ
    float *inside = nullptr, *slopes = nullptr;                        // columns
    float* rows = nullptr;                                             // linear, glu: the input, rows in strips
    std::vector<float> mean, scale, variance;                          // batch_norm, over this batch
};

// The nodes of a program, without memory.
struct MemoryPlan {
    explicit MemoryPlan(const Program& program);

    std::vector<Value> values;
    std::vector<Node> nodes;
    std::size_t last = 0;  // the value of the outputs
    bool raw = false;      // the first linear map reads the rows as they were gathered

    // Floats for `panels` panels; given memory, says where everything is.
    std::size_t place(std::size_t panels, const Program& program, const Kernels& kernels, float* memory);
};

}  // namespace multilayer
