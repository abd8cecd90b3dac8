// The inner loops of the fused core, with one table of functions per instruction set.
//
// The values of a batch are stored in panels (panels, d, 16): 16 rows next to each other, feature by feature. A vector then
// holds one feature of several rows. Products, activations, norms and losses loop over features, without sums across a
// vector. Matrices (rows, columns) are stored in strips of 64 columns, each strip row by row. The last strip has the width
// of whole lines, padded with zeros. A gradient loops down a strip, so it reads parameters, slots and inputs in the order
// of memory. All three products of a linear layer use the same tile, Σ_t scalar[i, t] · vector[t]:
//
//     forward    z[o]     = Σ_k W[o, k] · x[k]      vectors over rows of the batch, scalars from W
//     backward   dx[k]    = Σ_o W[o, k] · δ[o]      the same, with W read down its columns
//     gradient   dW[o, k] = Σ_b δ[o, b] · x[b, k]   vectors over inputs, scalars from δ; needs x row by row
//
// Each result of a product is a single chain of multiply-adds, in the order of the index. If a gradient is the sum over two
// halves of the batch (`split`), it is the sum of two chains. Sums over the rows of a batch, and sums of squares along a
// row of a matrix, are sixteen such chains, one per lane, which sum16 adds in a fixed order. The bits therefore do not
// depend on the tile or on the number of threads. They do not depend on the instruction set either, if its multiply-add
// rounds once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program.h"

namespace multilayer {

constexpr std::size_t PANEL = 16;       // rows of a panel; floats of a cache line
constexpr std::size_t STRIP = 64;       // columns of a strip; also units per block, which fit into the first-level cache
constexpr std::size_t TILE_PANELS = 4;  // maximum panels of a tile

// n rounded up to whole cache lines.
constexpr std::size_t padded(std::size_t n) { return (n + PANEL - 1) / PANEL * PANEL; }

// The layout of a matrix in strips: (rows, width) each, one after the other.
struct Strips {
    std::size_t rows, columns;
    std::size_t size() const { return rows * padded(columns); }
    std::size_t count() const { return (columns + STRIP - 1) / STRIP; }
    std::size_t width(std::size_t strip) const {
        const std::size_t left = padded(columns) - strip * STRIP;
        return left < STRIP ? left : STRIP;
    }
    std::size_t first(std::size_t strip) const { return strip * STRIP * rows; }
    std::size_t at(std::size_t row, std::size_t column) const {
        return first(column / STRIP) + row * width(column / STRIP) + column % STRIP;
    }
};

// A part of a batch: units u0 .. u1 - 1 of panels p0 .. p1 - 1.
struct Region {
    std::size_t u0, u1, p0, p1;
};

struct Affine {
    const float* weight;  // (O, I) in strips
    const float* bias;  // (O), or null
    float factor;
    std::size_t d_in, d_out;
};

// The constants of an update, which are the same for all values of a parameter.
struct Update {
    OptimizerKind kind;
    float rate, shrink;       // η, with the correction of Adam; 1 − η λ
    float l2, clip, scale;    // scale: factor of the gradient due to clipping by norm
    // μ or β₁. rest1 = 1 − β₁ is computed in double, because 1 − β₁ in float is inaccurate. The same holds for the
    // other two.
    float momentum, rest1;
    float beta2, rest2;
    float eps;                // with the correction of Adam
    float average, rest_average;  // β of the running average; negative for none
};

// Part of a parameter: the same position in each array. Arrays that are not used are null.
struct ParameterArrays {
    float *value, *slot0, *slot1, *average;
};

// Gradient dW of rows o0 .. o1 - 1. It is applied at once if `update` is given, and otherwise written to `gradient`.
struct WeightGradient {
    const float* delta;  // (panels, O, 16)
    const float* rows;   // (capacity, I) in strips
    std::size_t capacity, batch;
    std::size_t first_row;  // first row of the batch in `delta`
    std::size_t split;      // row of delta at which a second sum starts, which is added to the first; 0 for a single sum
    float factor;
    std::size_t d_in, d_out;
    ParameterArrays arrays;           // the matrix, its slots and its average, all (O, I) in strips
    float* gradient;       // (O, I) in strips, or null
    const Update* update;  // or null
    // (O, 16), or null. The first value of each line is Σ dW² of a row. It is ∞ if a value is above 10¹⁹. Values below
    // 10⁻¹⁹ count as 0.
    float* squares;
    bool upwards;          // every other step visits strips in reverse order, to use what is still in the cache
};

// Counts the inactive and the flat rows of each unit before its function is applied (CountedRange in program.h).
struct UnitCounter {
    float inactive_low, inactive_high, flat_low, flat_high;  // NaN for no bound
    std::size_t rows;        // rows of the batch; later rows of the last panel are not counted
    std::int64_t* inactive;  // (d), or null
    std::int64_t* flat;      // (d), or null
};

struct Pointwise {
    Function function;
    float constant;
    const float* learned;  // one value, or one per unit
    bool per_unit;
    const float* blend;    // (d), or null
    std::size_t d;
    float* slope;          // (panels, d, 16): da/dz including the dropout mask; null for prediction
    float* d_learned;      // da/dp, or null
    float* d_blend;        // f(z) − z, or null
    // Dropout for p > 0: a value is kept, and multiplied by `kept`, if its word of the random stream is at least
    // `threshold`.
    bool drops;
    std::uint64_t threshold;
    float kept;
    std::uint64_t seed;
    std::uint32_t epoch, part;
    const std::uint32_t* ids;  // (panels · 16): the row numbers
    UnitCounter counter;       // both arrays are null if units are not counted
};

struct Unitwise {
    Kind kind;  // of MULTILAYER_UNITWISE
    std::size_t d;
    const float *weight, *bias;  // (d), or null if the kind has none
};

struct Norm {
    Kind kind;  // layer_norm, rms_norm, group_norm; batch_norm with given mean and inverse
    std::size_t d, groups;
    float eps;
    const float *weight, *bias;  // (d)
    const float *mean, *inverse; // batch_norm: (d)
};

struct LossTable {
    const Loss* loss;
    const float* quantiles;
    std::size_t d;              // number of outputs
    std::size_t targets;
    const float* share;         // (panels · 16): weight of the row / Σ weights; 0 for padding
    const std::int64_t* classes;  // (panels · 16), or
    const float* y;             // (panels · 16, targets)
};

struct Embedding {
    Numeric numeric;
    std::size_t F, n, K, D, width;  // width: outputs per feature
    const float *frequency, *phase, *weight, *bias, *edges;
};

// Returns the sizes of an embedding. The caller sets the pointers.
inline Embedding embedding_of(const Program& program, const Op& op) {
    const Columns& c = op.columns;
    const std::size_t width = c.numeric == Numeric::none ? 1 : c.D + (c.numeric == Numeric::pbld ? 1 : 0);
    return {c.numeric, program.numeric, c.n, c.K, c.D, width, nullptr, nullptr, nullptr, nullptr, nullptr};
}

// Writes the values of a category with distance `apart`: its row of the table, or one-hot (−1 or +1 for two values).
inline void write_category(const Category& c, const float* table, std::int64_t code, float* to, std::size_t apart) {
    for (std::size_t j = 0; j < c.width; ++j) {
        if (table) {
            to[j * apart] = table[static_cast<std::size_t>(code) * c.width + j];
        } else if (c.values == 2) {
            to[j * apart] = code == 0 ? 0.0f : code == 1 ? -1.0f : 1.0f;
        } else {
            to[j * apart] = code == static_cast<std::int64_t>(j) + 1 ? 1.0f : 0.0f;
        }
    }
}

struct Kernels {
    const char* name;
    const char* const* needs;
    std::size_t n_needs;

    // z = factor · W x + b for the units of the region.
    void (*forward)(const Affine&, const float* x, float* z, Region);
    // dx = factor · Wᵀ δ for the units of the region, which are inputs.
    void (*backward)(const Affine&, const float* delta, float* dx, Region);
    void (*weight_gradient)(const WeightGradient&, std::size_t o0, std::size_t o1);
    // Adds the gradients of two halves, computed with factor 1. The result has the bits of weight_gradient with
    // `split`.
    void (*join_gradient)(const WeightGradient&, const float* first, const float* second, std::size_t o0, std::size_t o1);
    // Updates n values with the gradient g.
    void (*update)(const Update&, std::size_t n, const float* g, ParameterArrays);

    // Σ g² of each row of a stored gradient, with the bits of weight_gradient.
    void (*square_sums)(const float* g, Strips matrix, bool upwards, float* squares);

    // Converts x (panels, d, 16) to rows (capacity, d) in strips, and back. u0 is a multiple of 16. Rows are padded
    // with zeros.
    void (*to_rows)(const float* x, Strips rows, float* to, Region);
    void (*to_panels)(const float* from, Strips rows, float* x, Region);

    // In place: x becomes a. u0 is a multiple of 4.
    void (*pointwise)(const Pointwise&, float* x, Region);
    // In place: g becomes dL/dz. d_learned and d_blend are multiplied by g.
    void (*pointwise_backward)(const Pointwise&, float* g, Region);

    // z (panels, 2·O, 16) → y (panels, O, 16). If `train` is set, z becomes dy/dz₁ and dy/dz₂.
    void (*gate)(Function, std::size_t d_out, float* z, float* y, Region, bool train);
    void (*gate_backward)(std::size_t d_out, const float* slopes, const float* g, float* dz, Region);

    // y = f(x; w, b) for each unit, and dx for g.
    void (*unitwise)(const Unitwise&, const float* x, float* y, Region);
    void (*unitwise_backward)(const Unitwise&, const float* g, float* dx, Region);
    void (*add)(std::size_t d, const float* x, float* y, Region);
    void (*copy)(std::size_t d, const float* x, float* y, Region);

    // All units of panels p0 .. p1 - 1. `hat` and `inverse` (panels, groups, 16) are kept for the backward pass.
    void (*norm)(const Norm&, const float* x, float* y, float* hat, float* inverse, std::size_t p0, std::size_t p1);
    void (*norm_backward)(const Norm&, const float* g, const float* hat, const float* inverse, float* dx,
                          std::size_t p0, std::size_t p1);
    // batch_norm: statistics of units u0 .. u1 - 1 over `batch` rows, and dx, which also needs sums over the batch.
    void (*batch_statistics)(const float* x, std::size_t d, std::size_t batch, float eps, float* mean, float* inverse,
                             float* variance, std::size_t u0, std::size_t u1);
    void (*batch_backward)(const Norm&, const float* g, const float* hat, std::size_t batch, float* dx, std::size_t u0,
                           std::size_t u1);

    // Writes the loss of each row (panels · 16), and replaces z by δ = ∂L/∂z.
    void (*loss)(const LossTable&, float* z, float* rows, std::size_t p0, std::size_t p1);

    // Σ over rows of x ⊙ y, or of x if y is null, for units u0 .. u1 - 1.
    void (*sum_rows)(const float* x, const float* y, std::size_t d, std::size_t panels, float* out, std::size_t u0,
                     std::size_t u1);

    // Features f0 .. f1 - 1: writes x (panels, F, 16) to the first F · width units of y. `inside` (panels, F · K, 16)
    // and `slopes` (panels, F · slopes_of, 16) are kept for the backward pass.
    std::size_t (*slopes_of)(const Embedding&);
    void (*embed)(const Embedding&, const float* x, float* y, std::size_t d_y, float* inside, float* slopes,
                  std::size_t f0, std::size_t f1, std::size_t p0, std::size_t p1);
    void (*embed_gradient)(const Embedding&, const float* x, const float* g, std::size_t d_y,
                           const float* inside, const float* slopes, std::size_t panels, float* d_frequency,
                           float* d_phase, float* d_weight, float* d_bias, std::size_t f0, std::size_t f1);

    // Prediction on n rows with distance `stride`. The results have the bits of the functions on panels. Here the
    // weight of an Affine is (I, O) in strips, `bias` has whole lines and is never null, and z has room for whole
    // lines.
    void (*forward_rows)(const Affine&, const float* x, std::size_t stride, float* z, std::size_t stride_z, std::size_t n);
    void (*pointwise_rows)(const Pointwise&, float* x, std::size_t stride, std::size_t n);
    void (*gate_rows)(Function, std::size_t d_out, const float* z, std::size_t stride, float* y, std::size_t stride_y,
                      std::size_t n);
    void (*unitwise_rows)(const Unitwise&, float* x, std::size_t stride, std::size_t n);
    void (*embed_row)(const Embedding&, const float* x, float* y);
};

// Returns the kernels with this name, or by default the widest that this processor supports (dispatch.cpp).
const Kernels& kernels_named(const std::string& name);

// Names of the kernels that this processor supports, narrowest first.
std::vector<std::string> fused_kernels();

#define ISA(name) namespace name { extern const Kernels kernels; }
MULTILAYER_ISAS
#undef ISA

}  // namespace multilayer
