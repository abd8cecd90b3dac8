// A network, its loss and its optimizer as plain data, and the interface of the cores that run them.
//
// Python writes a Program from a Spec, and cores only read it. Two kinds of core implement the same interface: plain loops
// in float or double (reference/reference.h), used as the reference in tests and as a fallback, and vectorized kernels on
// panels in float (fused/fused.h).
//
// A network is a flat list of operations. Its input is the numbers and category codes of a row. Each operation turns d_in
// values of a row into d_out values. A residual block is `enter`, its operations, and `leave`, which adds the input of
// `enter`.
//
//     kind         reads                                     computes
//     linear       weight (O, I), bias (O)                   y = factor · W x + b
//     glu          weight (2·O, I), bias (2·O)               y = f(W₁x + b₁) ⊙ (W₂x + b₂)
//     activation   learned () or (I), blend (I)              a = f(x), or x + α (f(x) − x)
//     scale        weight (I)                                y = x ⊙ s
//     dropout      p, part                                   y = x ⊙ keep / (1 − p · factor of the step)
//     batch_norm   weight, bias (I), mean, var (buffers)     normalizes over the rows of the batch
//     layer_norm   weight, bias (I)                          normalizes each row
//     rms_norm     weight (I)                                normalizes each row, without a mean
//     group_norm   weight, bias (I), groups                  normalizes each of `groups` slices of a row
//     columns      see Columns                               one vector from numbers and codes; always first
//     enter, leave                                           y = x; y = x + input of `enter`
//
// A kind of MULTILAYER_UNITWISE needs only its name and its formulas in formulas/unitwise.h. A kind of MULTILAYER_ROWWISE
// needs its name here, and its formulas in kernels/norms.h and reference/layers.h. The cores, the binding and
// engines/fused_program.py use these lists.
//
// The formulas are those of src/multilayer/nn/layers. Dropout masks come from the random stream (runtime/random.h) with
// purpose dropout, the part of the operation, the number of the row (`ids`) and the unit.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "formulas/activations.h"
#include "formulas/losses.h"
#include "formulas/optimizers.h"
#include "formulas/unitwise.h"
#include "runtime/cancellation.h"

namespace multilayer {

constexpr int NONE = -1;

// Normalize each row: y = weight ⊙ x̂ + bias (kernels/norms.h).
#define MULTILAYER_ROWWISE(X) X(layer_norm) X(rms_norm) X(group_norm)
#define MULTILAYER_KINDS(X)                                                                             \
    X(linear) X(glu) X(activation) X(dropout) X(batch_norm) X(columns) X(enter) X(leave)                 \
    MULTILAYER_UNITWISE(X) MULTILAYER_ROWWISE(X)
MULTILAYER_ENUM(Kind, MULTILAYER_KINDS)

#define MULTILAYER_NUMERICS(X) X(none) X(plr) X(pbld) X(piecewise)
MULTILAYER_ENUM(Numeric, MULTILAYER_NUMERICS)

// A category column with `values` known values: a table (values + 1, width), or one-hot if `table` is NONE.
struct Category {
    std::int64_t values = 0;
    int table = NONE;
    std::size_t width = 0;
};

// Embeddings of F numbers, each with its own weights, K hidden values and D outputs. Tensors as in
// nn/layers/columns.py: frequency, phase (F, n), weight (F, K, D), bias (F, D), edges (F, n + 1).
struct Columns {
    Numeric numeric = Numeric::none;
    std::size_t n = 0;  // frequencies or bins
    std::size_t K = 0, D = 0;
    int frequency = NONE, phase = NONE, weight = NONE, bias = NONE;  // parameters
    int edges = NONE;                                                // buffer
    std::vector<Category> categories;
};

// The values z of an activation that `Core::run` counts for each unit: inactive for z ≤ inactive_low or z ≥ inactive_high,
// and flat for z < flat_low or z > flat_high. NaN means that there is no bound. The bounds are exact in float.
struct CountedRange {
    static constexpr double NO_BOUND = std::numeric_limits<double>::quiet_NaN();
    double inactive_low = NO_BOUND, inactive_high = NO_BOUND, flat_low = NO_BOUND, flat_high = NO_BOUND;

    bool has_inactive() const { return !std::isnan(inactive_low) || !std::isnan(inactive_high); }
    bool has_flat() const { return !std::isnan(flat_low) || !std::isnan(flat_high); }
    bool any() const { return has_inactive() || has_flat(); }
};

struct Op {
    Kind kind = Kind::linear;
    std::size_t d_in = 0, d_out = 0;
    int weight = NONE, bias = NONE;  // indices in Program::parameters
    double factor = 1.0;             // linear

    Function function = Function::identity;  // activation, and the gate of glu
    double constant = 0.0;
    int learned = NONE;  // one value shared by all units, or one per unit
    int blend = NONE;
    CountedRange counted;

    double p = 0.0;           // dropout
    std::uint32_t part = 0;   // its index among the dropout operations with p > 0

    double eps = 0.0;         // norms
    std::size_t groups = 1;
    double momentum = 0.0;    // batch_norm
    int mean = NONE, var = NONE;  // indices in Program::buffers

    Columns columns;
};

// Case labels for a list of kinds.
#define MULTILAYER_CASE(name) case Kind::name:

// Whether a kind is one of MULTILAYER_UNITWISE.
constexpr bool is_unitwise(Kind kind) {
    switch (kind) {
        MULTILAYER_UNITWISE(MULTILAYER_CASE) return true;
        default: return false;
    }
}

// Multiply-adds of a row in the forward pass of an operation. Only matrix products and embeddings count. `numeric` is
// as in Program.
inline std::size_t multiply_adds(const Op& op, std::size_t numeric) {
    switch (op.kind) {
        case Kind::linear: return op.d_in * op.d_out;
        case Kind::glu: return 2 * op.d_in * op.d_out;
        case Kind::columns: return numeric * op.columns.K * (op.columns.D + 8);  // a sine or cosine costs about 8
        default: return 0;
    }
}

struct Parameter {
    std::size_t size = 0;
    double rate_factor = 1.0;   // factor of the learning rate
    double decay_factor = 0.0;  // factor of weight decay and L2
};

struct Program {
    std::size_t numeric = 0;  // numbers per row
    std::size_t d_out = 0;
    std::vector<Op> ops;
    std::vector<Parameter> parameters;
    std::vector<std::size_t> buffers;  // sizes
    Loss loss;
    Optimizer optimizer;
    std::uint64_t seed = 0;
    double l2 = 0.0;
    double clip_norm = std::numeric_limits<double>::infinity();
    double clip_value = std::numeric_limits<double>::infinity();
    double average = NONE;  // β of the running average of the parameters; negative for no average
    std::uint64_t statistics_every = 0;  // steps between two statistics of every parameter; 0 for no statistics

    bool records_statistics(std::uint64_t step) const { return statistics_every > 0 && step % statistics_every == 0; }
};

// The rows of a data set, which a core only reads. Targets are class numbers, or `targets` values per row. With
// cross-entropy, these values are class probabilities mixed by an augmentation.
template <class T>
struct Table {
    std::size_t rows = 0;
    const T* x = nullptr;             // (rows, numeric), with row stride `stride`
    std::size_t stride = 0;
    const std::int64_t* codes = nullptr;    // (rows, categories); checked by the caller
    const std::int64_t* classes = nullptr;  // (rows), or
    const T* y = nullptr;                   // (rows, targets)
    std::size_t targets = 0;
    const T* weight = nullptr;  // (rows), or null for equal weights
};

// The rows of some steps: row i of a step is row `rows[i]` of the table, and its dropout masks are those of row number
// `ids[i]`. The arrays are equal unless the table holds augmented rows that were computed for the call.
struct Order {
    std::span<const std::int64_t> rows, ids;
    std::size_t batch = 1;
    std::uint32_t epoch = 0;
    std::size_t steps() const { return (rows.size() + batch - 1) / batch; }
};

// For each step: learning rate (multiplied by the rate factor of the state), weight decay, and factor of the dropout
// rate.
struct Schedule {
    const double *rate, *decay, *dropout;
};

// Groups of tensors of the state.
#define MULTILAYER_GROUPS(X) X(parameters) X(buffers) X(slot0) X(slot1) X(averages)
MULTILAYER_ENUM(Group, MULTILAYER_GROUPS)

constexpr std::size_t FINISHED = static_cast<std::size_t>(-1);

// Whether n values are finite.
template <class T>
bool all_finite(const T* x, std::size_t n) {
    bool finite = true;
    for (std::size_t i = 0; i < n; ++i) finite &= x[i] - x[i] == T(0);
    return finite;
}

// A training core. After a stop request, the state is that after the last complete step.
template <class T>
class Core {
public:
    virtual ~Core() = default;

    // Makes the steps of the order. Writes the loss of each step before its update, and the gradient norm before
    // clipping. Returns the first step whose loss or norm is not finite, or FINISHED. Later results are undefined.
    // `step` counts the completed steps; a stop request may end a call early.
    virtual std::size_t run(const Table<T>& table, const Order& order, const Schedule& schedule, double* loss,
                            double* norm, const StopRequested& stop) = 0;

    // Computes a step over all rows of the order: returns the loss, and writes the gradient of each parameter and the
    // new value of each buffer. After a stop request, the results are undefined.
    virtual double gradients(const Table<T>& table, const Order& order, double dropout, std::span<T* const> gradients,
                             std::span<T* const> buffers, const StopRequested& stop) = 0;

    // Makes one update with given gradients, including clipping, and new values of buffers. Returns the norm before
    // clipping.
    virtual double apply(std::span<const T* const> gradients, std::span<const T* const> buffers, double rate,
                         double decay) = 0;

    // Writes raw outputs (rows, d_out) for prediction: without dropout, and with running statistics.
    virtual void outputs(const Table<T>& table, std::span<const std::int64_t> rows, bool averaged, T* out,
                         const StopRequested& stop) = 0;

    // Whether every parameter is finite.
    virtual bool finite() const = 0;

    virtual void read(Group group, std::size_t place, T* out) const = 0;
    virtual void write(Group group, std::size_t place, const T* values) = 0;

    // The current size of its arrays.
    virtual std::size_t bytes() const = 0;

    std::uint64_t step = 0;  // completed updates

    // Filled by `run` at steps that are multiples of `statistics_every`: the norm of the gradient of each parameter
    // before clipping, then the norm of each parameter after the step.
    std::vector<double> statistics;

    // Whether `run` counts, and its counts over the rows of all steps: for each operation with a CountedRange, the
    // inactive rows of each unit, then the flat rows of each unit.
    bool counts_units = false;
    std::vector<std::int64_t> unit_counts;
};

}  // namespace multilayer
