// A network, its loss and its optimiser as plain data, and what a core that runs them does.
//
// Python writes a Program from a Spec once; cores only read it. Two kinds of core meet the same interface: plain loops
// in float or double (reference/reference.h), which are oracle and fallback, and vectorised panels in float (fused/fused.h).
//
// A network is a flat list of operations. What goes in is the row's numbers and codes; each operation turns the d_in
// numbers of a row into d_out. A residual block is `enter`, its operations, `leave`: leave adds what enter was given.
//
//     kind         reads                                     gives
//     linear       weight (O, I), bias (O)                   y = factor · W x + b
//     glu          weight (2·O, I), bias (2·O)               y = f(W₁x + b₁) ⊙ (W₂x + b₂)
//     activation   learned () or (I), blend (I)              a = f(x), or x + α (f(x) − x)
//     scale        weight (I)                                y = x ⊙ s
//     dropout      p, part                                   y = x ⊙ keep / (1 − p · factor of the step)
//     batch_norm   weight, bias (I), mean, var (buffers)     over the rows of the batch
//     layer_norm   weight, bias (I)                          over each row
//     rms_norm     weight (I)                                over each row, without a mean
//     group_norm   weight, bias (I), groups                  over each of `groups` slices of a row
//     columns      see Columns                               numbers and codes to one vector; always first
//     enter, leave                                           y = x; y = x + what its enter was given
//
// A kind of MULTILAYER_UNITWISE needs nothing but its name and its formulas in formulas/unitwise.h. One of
// MULTILAYER_ROWWISE needs its name here and its formulas in kernels/norms.h and reference/layers.h. The cores, the binding
// and engines/fused_program.py find them by these lists.
//
// Formulas are those of src/multilayer/nn/layers; masks are keyed as runtime/random.h says, by purpose dropout, the
// operation's part, the row's own number (`ids`) and the unit.
#pragma once

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

// Each row by itself, y = weight ⊙ x̂ + bias (kernels/norms.h).
#define MULTILAYER_ROWWISE(X) X(layer_norm) X(rms_norm) X(group_norm)
#define MULTILAYER_KINDS(X)                                                                             \
    X(linear) X(glu) X(activation) X(dropout) X(batch_norm) X(columns) X(enter) X(leave)                 \
    MULTILAYER_UNITWISE(X) MULTILAYER_ROWWISE(X)
MULTILAYER_ENUM(Kind, MULTILAYER_KINDS)

#define MULTILAYER_NUMERICS(X) X(none) X(plr) X(pbld) X(piecewise)
MULTILAYER_ENUM(Numeric, MULTILAYER_NUMERICS)

// One category column of `values` known values: a table (values + 1, width), or one-hot where table is NONE.
struct Category {
    std::int64_t values = 0;
    int table = NONE;
    std::size_t width = 0;
};

// F numbers, each with weights of its own: K values inside, D out of the product. Tensors as in nn/layers/columns.py:
// frequency, phase (F, n), weight (F, K, D), bias (F, D), edges (F, n + 1).
struct Columns {
    Numeric numeric = Numeric::none;
    std::size_t n = 0;  // frequencies or bins
    std::size_t K = 0, D = 0;
    int frequency = NONE, phase = NONE, weight = NONE, bias = NONE;  // parameters
    int edges = NONE;                                                // buffer
    std::vector<Category> categories;
};

struct Op {
    Kind kind = Kind::linear;
    std::size_t d_in = 0, d_out = 0;
    int weight = NONE, bias = NONE;  // parameters, by their place in Program::parameters
    double factor = 1.0;             // linear

    Function function = Function::identity;  // activation, and the gate of glu
    double constant = 0.0;
    int learned = NONE;  // of one number, shared by all units, or of one for each
    int blend = NONE;

    double p = 0.0;           // dropout
    std::uint32_t part = 0;   // its ordinal among those with p > 0

    double eps = 0.0;         // norms
    std::size_t groups = 1;
    double momentum = 0.0;    // batch_norm
    int mean = NONE, var = NONE;  // buffers, by their place in Program::buffers

    Columns columns;
};

// Labels of a `switch` for a list of kinds.
#define MULTILAYER_CASE(name) case Kind::name:

// Whether a kind is one of MULTILAYER_UNITWISE.
constexpr bool is_unitwise(Kind kind) {
    switch (kind) {
        MULTILAYER_UNITWISE(MULTILAYER_CASE) return true;
        default: return false;
    }
}

// Multiply-adds of a row on its way through an operation, those that count; `numeric` as in Program.
inline std::size_t multiply_adds(const Op& op, std::size_t numeric) {
    switch (op.kind) {
        case Kind::linear: return op.d_in * op.d_out;
        case Kind::glu: return 2 * op.d_in * op.d_out;
        case Kind::columns: return numeric * op.columns.K * (op.columns.D + 8);  // a wave is worth about eight
        default: return 0;
    }
}

struct Parameter {
    std::size_t size = 0;
    double rate_factor = 1.0;   // what the learning rate is multiplied by
    double decay_factor = 0.0;  // what decay and L2 are multiplied by
};

struct Program {
    std::size_t numeric = 0;  // numbers a row
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
    double average = NONE;  // β of the running average of the parameters; negative for none
    std::uint64_t statistics_every = 0;  // steps between two statistics of every parameter; 0 for none

    bool records_statistics(std::uint64_t step) const { return statistics_every > 0 && step % statistics_every == 0; }
};

// Rows that a core reads and never changes. Class numbers, or `targets` numbers a row, which are probabilities of
// classes where an augmentation mixed them under cross-entropy.
template <class T>
struct Table {
    std::size_t rows = 0;
    const T* x = nullptr;             // (rows, numeric), `stride` apart
    std::size_t stride = 0;
    const std::int64_t* codes = nullptr;    // (rows, categories); checked by the caller
    const std::int64_t* classes = nullptr;  // (rows), or
    const T* y = nullptr;                   // (rows, targets)
    std::size_t targets = 0;
    const T* weight = nullptr;  // (rows), or null: all the same
};

// Where the rows of some steps are and who they are: row i of a step is table row `rows[i]`, and its masks are those of
// `ids[i]`. The two are the same array unless the table was made for the call (augmented rows).
struct Order {
    std::span<const std::int64_t> rows, ids;
    std::size_t batch = 1;
    std::uint32_t epoch = 0;
    std::size_t steps() const { return (rows.size() + batch - 1) / batch; }
};

// Of each step: learning rate (times the state's own factor), decay, factor on dropout.
struct Schedule {
    const double *rate, *decay, *dropout;
};

// Tensors of the state, by group and place.
#define MULTILAYER_GROUPS(X) X(parameters) X(buffers) X(slot0) X(slot1) X(averages)
MULTILAYER_ENUM(Group, MULTILAYER_GROUPS)

constexpr std::size_t FINISHED = static_cast<std::size_t>(-1);

// Whether n numbers are.
template <class T>
bool all_finite(const T* x, std::size_t n) {
    bool finite = true;
    for (std::size_t i = 0; i < n; ++i) finite &= x[i] - x[i] == T(0);
    return finite;
}

// A call that is asked to end leaves the state as it was after the last whole step.
template <class T>
class Core {
public:
    virtual ~Core() = default;

    // Takes the steps of the order. Writes each step's loss (before its update) and gradient norm (before clipping).
    // Gives the first step whose loss or norm is not finite, or FINISHED: what was computed from there on means nothing.
    // `step` tells how many it made: fewer where it was asked to end.
    virtual std::size_t run(const Table<T>& table, const Order& order, const Schedule& schedule, double* loss,
                            double* norm, const StopRequested& stop) = 0;

    // The loss of a step over all the rows of the order; each parameter's gradient and each buffer's new value. They mean
    // nothing where the call was asked to end.
    virtual double gradients(const Table<T>& table, const Order& order, double dropout, std::span<T* const> gradients,
                             std::span<T* const> buffers, const StopRequested& stop) = 0;

    // One update with given gradients (clipping included) and new values of buffers. Gives the norm before clipping.
    virtual double apply(std::span<const T* const> gradients, std::span<const T* const> buffers, double rate,
                         double decay) = 0;

    // Raw outputs (rows, d_out) at prediction: no dropout, running statistics.
    virtual void outputs(const Table<T>& table, std::span<const std::int64_t> rows, bool averaged, T* out,
                         const StopRequested& stop) = 0;

    // Whether every parameter is.
    virtual bool finite() const = 0;

    virtual void read(Group group, std::size_t place, T* out) const = 0;
    virtual void write(Group group, std::size_t place, const T* values) = 0;

    // What its arrays take by now.
    virtual std::size_t bytes() const = 0;

    std::uint64_t step = 0;  // updates made so far

    // Filled by run at steps that are multiples of the program's `statistics_every`: for each parameter the norm of its
    // gradient before clipping, then of its values after the step.
    std::vector<double> statistics;
};

}  // namespace multilayer
