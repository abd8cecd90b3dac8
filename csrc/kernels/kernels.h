// The inner loops of the fused core, one table of functions for each instruction set.
//
// Numbers of a batch live in panels: 16 rows side by side, feature by feature, (panels, d, 16). A vector then holds one
// feature of several rows, so that products, activations, norms and losses all run down the features with no sums
// across a vector. Matrices (rows, columns) are cut into strips of 64 columns, each row by row; the last strip is as wide
// as whole lines need, filled up with zeros. A gradient then walks down a strip: parameters, slots and inputs are read
// in the order they lie. The three products of a layer are one tile, Σ_t scalar[i, t] · vector[t]:
//
//     forward    z[o]     = Σ_k W[o, k] · x[k]      vectors over rows of the batch, scalars from W
//     backward   dx[k]    = Σ_o W[o, k] · δ[o]      the same, W read down its columns
//     gradient   dW[o, k] = Σ_b δ[o, b] · x[b, k]   vectors over inputs, scalars from δ; needs x row by row
//
// Every number of these is one chain of multiply-adds in the order of its index; where a gradient is that of two halves of the
// batch (`split`), two chains and their sum. Sums over the rows of a batch, and squares along a row of a matrix, are sixteen
// such chains, one a lane, added up in one order (sum16). So the bits are the same whatever the tile, the number of
// threads and, where multiply-add rounds once, the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program.h"

namespace multilayer {

constexpr std::size_t PANEL = 16;       // rows of a panel; floats of a cache line
constexpr std::size_t STRIP = 64;       // columns of a strip, and units worked on while they are in the first cache
constexpr std::size_t TILE_PANELS = 4;  // panels that a tile takes at once, at most

// n rounded up to whole lines of the cache.
constexpr std::size_t padded(std::size_t n) { return (n + PANEL - 1) / PANEL * PANEL; }

// Strips of a matrix: (rows, width) each, one after the other.
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

// What a step does to a parameter, the same for all of its numbers.
struct Update {
    OptimizerKind kind;
    float rate, shrink;       // η, Adam's corrected; 1 − η λ
    float l2, clip, scale;    // scale: what clipping by norm multiplies the gradient by
    float momentum, rest1;    // μ, or β₁; 1 − β₁, which float's β₁ no longer tells to its last bits, as the other two
    float beta2, rest2;
    float eps;                // corrected as the rate is
    float average, rest_average;  // β of the running average; negative for none
};

// Rows of a parameter: the same place in each array; those that are not kept are null.
struct ParameterArrays {
    float *value, *slot0, *slot1, *average;
};

// dW of rows o0 .. o1 - 1: applied at once where `update` is given, written to `gradient` otherwise.
struct WeightGradient {
    const float* delta;  // (panels, O, 16)
    const float* rows;   // (capacity, I) in strips
    std::size_t capacity, batch;
    std::size_t first_row;  // of the batch that `delta` begins with
    std::size_t split;      // rows of delta after which a second sum begins, to be added to the first; 0 for one sum
    float factor;
    std::size_t d_in, d_out;
    ParameterArrays arrays;           // the matrix, its slots and average, all (O, I) in strips
    float* gradient;       // the same, or null
    const Update* update;  // or null
    // (O, 16), or null: Σ dW² of each row, in its first place; ∞ where one is above 10¹⁹, 0 for those below 10⁻¹⁹.
    float* squares;
    bool upwards;          // last strip first: every other step, so that what is still in the cache comes first
};

struct Pointwise {
    Function function;
    float constant;
    const float* learned;  // one number, or one for each unit
    bool per_unit;
    const float* blend;    // (d), or null
    std::size_t d;
    float* slope;          // (panels, d, 16): da/dz, the mask in it; null at prediction
    float* d_learned;      // da/dp, or null
    float* d_blend;        // f(z) − z, or null
    // Dropout, where p > 0: numbers are kept where a word of the stream is at least `threshold`, and then × `kept`.
    bool drops;
    std::uint64_t threshold;
    float kept;
    std::uint64_t seed;
    std::uint32_t epoch, part;
    const std::uint32_t* ids;  // (panels · 16): the rows' own numbers
};

struct Unitwise {
    Kind kind;  // of MULTILAYER_UNITWISE
    std::size_t d;
    const float *weight, *bias;  // (d), those that the kind has
};

struct Norm {
    Kind kind;  // layer_norm, rms_norm, group_norm; batch_norm with mean and inverse given
    std::size_t d, groups;
    float eps;
    const float *weight, *bias;  // (d)
    const float *mean, *inverse; // batch_norm: (d)
};

struct LossTable {
    const Loss* loss;
    const float* quantiles;
    std::size_t d;              // outputs
    std::size_t targets;
    const float* share;         // (panels · 16): the row's weight / Σ weights; 0 where there is no row
    const std::int64_t* classes;  // (panels · 16), or
    const float* y;             // (panels · 16, targets)
};

struct Embedding {
    Numeric numeric;
    std::size_t F, n, K, D, width;  // width: numbers a feature gives
    const float *frequency, *phase, *weight, *bias, *edges;
};

// Sizes of an embedding; where its tensors are is the caller's to say.
inline Embedding embedding_of(const Program& program, const Op& op) {
    const Columns& c = op.columns;
    const std::size_t width = c.numeric == Numeric::none ? 1 : c.D + (c.numeric == Numeric::pbld ? 1 : 0);
    return {c.numeric, program.numeric, c.n, c.K, c.D, width, nullptr, nullptr, nullptr, nullptr, nullptr};
}

// The numbers of one category, `apart` from each other: its row of the table, or one-hot (a sign for two values).
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

    // z = factor · W x + b of the part's units.
    void (*forward)(const Affine&, const float* x, float* z, Region);
    // dx = factor · Wᵀ δ of the part's units, which are inputs.
    void (*backward)(const Affine&, const float* delta, float* dx, Region);
    void (*weight_gradient)(const WeightGradient&, std::size_t o0, std::size_t o1);
    // The same from two sums that were made apart, with a factor of 1: bit for bit what one call makes of both.
    void (*join_gradient)(const WeightGradient&, const float* first, const float* second, std::size_t o0, std::size_t o1);
    // One update of n numbers with the gradient g.
    void (*update)(const Update&, std::size_t n, const float* g, ParameterArrays);

    // Σ g² of each row of a gradient that is stored, bit for bit as weight_gradient finds it.
    void (*square_sums)(const float* g, Strips matrix, bool upwards, float* squares);

    // x (panels, d, 16) to rows (capacity, d) in strips and back; u0 is a multiple of 16, and rows are filled with zeros.
    void (*to_rows)(const float* x, Strips rows, float* to, Region);
    void (*to_panels)(const float* from, Strips rows, float* x, Region);

    // In place: x becomes a.   u0 is a multiple of 4.
    void (*pointwise)(const Pointwise&, float* x, Region);
    // In place: g becomes dL/dz; d_learned and d_blend become g times themselves.
    void (*pointwise_backward)(const Pointwise&, float* g, Region);

    // z (panels, 2·O, 16) → y (panels, O, 16); z becomes dy/dz₁, dy/dz₂ where `train`.
    void (*gate)(Function, std::size_t d_out, float* z, float* y, Region, bool train);
    void (*gate_backward)(std::size_t d_out, const float* slopes, const float* g, float* dz, Region);

    // y = f(x; w, b) per unit, and dx of g.
    void (*unitwise)(const Unitwise&, const float* x, float* y, Region);
    void (*unitwise_backward)(const Unitwise&, const float* g, float* dx, Region);
    void (*add)(std::size_t d, const float* x, float* y, Region);
    void (*copy)(std::size_t d, const float* x, float* y, Region);

    // All units of panels p0 .. p1 - 1. `hat` and `inverse` (panels, groups, 16) are kept for the way back.
    void (*norm)(const Norm&, const float* x, float* y, float* hat, float* inverse, std::size_t p0, std::size_t p1);
    void (*norm_backward)(const Norm&, const float* g, const float* hat, const float* inverse, float* dx,
                          std::size_t p0, std::size_t p1);
    // batch_norm: statistics of units u0 .. u1 - 1 over `batch` rows; and dx, whose sums are over the batch too.
    void (*batch_statistics)(const float* x, std::size_t d, std::size_t batch, float eps, float* mean, float* inverse,
                             float* variance, std::size_t u0, std::size_t u1);
    void (*batch_backward)(const Norm&, const float* g, const float* hat, std::size_t batch, float* dx, std::size_t u0,
                           std::size_t u1);

    // Loss of each row (panels · 16) and δ = ∂L/∂z in place of z.
    void (*loss)(const LossTable&, float* z, float* rows, std::size_t p0, std::size_t p1);

    // Σ over rows of x ⊙ y (or of x where y is null), for units u0 .. u1 - 1.
    void (*sum_rows)(const float* x, const float* y, std::size_t d, std::size_t panels, float* out, std::size_t u0,
                     std::size_t u1);

    // Features f0 .. f1 - 1: x (panels, F, 16) → y's first F · width units; `inside` (panels, F · K, 16) and `slopes`
    // (panels, F · slopes_of, 16) are kept for the way back.
    std::size_t (*slopes_of)(const Embedding&);
    void (*embed)(const Embedding&, const float* x, float* y, std::size_t d_y, float* inside, float* slopes,
                  std::size_t f0, std::size_t f1, std::size_t p0, std::size_t p1);
    void (*embed_gradient)(const Embedding&, const float* x, const float* g, std::size_t d_y,
                           const float* inside, const float* slopes, std::size_t panels, float* d_frequency,
                           float* d_phase, float* d_weight, float* d_bias, std::size_t f0, std::size_t f1);

    // Prediction, n rows side by side, `stride` apart: as their namesakes, bit for bit. The weight of an Affine lies (I, O)
    // in strips here, and bias is whole lines and never null; z has room for whole lines.
    void (*forward_rows)(const Affine&, const float* x, std::size_t stride, float* z, std::size_t stride_z, std::size_t n);
    void (*pointwise_rows)(const Pointwise&, float* x, std::size_t stride, std::size_t n);
    void (*gate_rows)(Function, std::size_t d_out, const float* z, std::size_t stride, float* y, std::size_t stride_y,
                      std::size_t n);
    void (*unitwise_rows)(const Unitwise&, float* x, std::size_t stride, std::size_t n);
    void (*embed_row)(const Embedding&, const float* x, float* y);
};

// The widest that this processor runs, or those of the name given (dispatch.cpp).
const Kernels& kernels_named(const std::string& name);

// Names of the kernels that this processor runs, narrowest first.
std::vector<std::string> fused_kernels();

#define ISA(name) namespace name { extern const Kernels kernels; }
MULTILAYER_ISAS
#undef ISA

}  // namespace multilayer
