// The networks of the tests, with rows and initial values.
#include "tests/networks.h"

#include <cmath>

#include "runtime/random.h"

namespace multilayer::tests {
namespace {

class Builder {
public:
    Builder(std::string name, std::size_t numeric, LossKind loss) : d_(numeric) {
        made_.name = std::move(name);
        made_.program.numeric = numeric;
        made_.program.loss.kind = loss;
        made_.program.seed = 7;
    }

    Builder& linear(std::size_t d, bool bias = true, double factor = 1.0) {
        Op op = start(Kind::linear, d);
        op.weight = parameter(d * d_), op.bias = bias ? parameter(d) : NONE, op.factor = factor;
        return add(op);
    }

    Builder& glu(std::size_t d, Function gate) {
        Op op = start(Kind::glu, d);
        op.weight = parameter(2 * d * d_), op.bias = parameter(2 * d);
        op.function = gate, op.constant = 1.0;  // of sigmoid
        return add(op);
    }

    Builder& activation(Function function, double constant = 0.0, bool blend = false, std::size_t learned = 0) {
        Op op = start(Kind::activation, d_);
        op.function = function, op.constant = constant;
        op.counted = {.inactive_low = -0.5, .inactive_high = 0.75, .flat_low = -0.25, .flat_high = 0.5};
        if (function == Function::relu) op.counted = {.inactive_low = 0.0, .flat_low = 0.0};
        if (function == Function::gelu) op.counted = {.flat_low = -0.25};
        if (learned) op.learned = parameter(learned);
        if (blend) op.blend = parameter(d_);
        const bool kinked = function == Function::relu || function == Function::leaky_relu || function == Function::prelu ||
                            function == Function::hard_tanh || function == Function::step || function == Function::elu ||
                            function == Function::selu;
        made_.smooth = made_.smooth && !kinked;
        return add(op);
    }

    // Adds an activation that shares the learned value of the previous activation.
    Builder& shared(Function function) {
        Op op = start(Kind::activation, d_);
        op.function = function, op.learned = static_cast<int>(made_.program.parameters.size()) - 1;
        return add(op);
    }

    Builder& dropout(double p) {
        Op op = start(Kind::dropout, d_);
        op.p = p, op.part = masks_++;
        return add(op);
    }

    Builder& scale() {
        Op op = start(Kind::scale, d_);
        op.weight = parameter(d_);
        return add(op);
    }

    Builder& norm(Kind kind, std::size_t groups = 1) {
        Op op = start(kind, d_);
        op.weight = parameter(d_), op.eps = 1e-3, op.groups = groups;
        if (kind != Kind::rms_norm) op.bias = parameter(d_);
        if (kind == Kind::batch_norm) op.momentum = 0.1, op.mean = buffer(d_), op.var = buffer(d_);
        return add(op);
    }

    Builder& enter() { return add(start(Kind::enter, d_)); }
    Builder& leave() { return add(start(Kind::leave, d_)); }

    Builder& columns(Numeric numeric, std::size_t n, std::size_t D, std::vector<Category> categories) {
        const std::size_t F = made_.program.numeric;
        const std::size_t K = numeric == Numeric::plr ? 2 * n : n;
        Columns c;
        c.numeric = numeric, c.n = n, c.K = K, c.D = D;
        std::size_t width = F;
        if (numeric != Numeric::none) {
            width = F * (D + (numeric == Numeric::pbld ? 1 : 0));
            if (numeric != Numeric::piecewise) c.frequency = parameter(F * n);
            if (numeric == Numeric::pbld) c.phase = parameter(F * n);
            c.weight = parameter(F * K * D), c.bias = parameter(F * D);
            if (numeric == Numeric::piecewise) c.edges = buffer(F * (n + 1));
        }
        for (Category& category : categories) {
            if (category.table != NONE) category.table = parameter((static_cast<std::size_t>(category.values) + 1) * category.width);
            width += category.width;
        }
        c.categories = std::move(categories);
        Op op = start(Kind::columns, width);
        op.columns = std::move(c);
        made_.smooth = made_.smooth && numeric != Numeric::plr && numeric != Numeric::piecewise;
        return add(op);
    }

    Builder& optimizer(OptimizerKind kind, double average = NONE) {
        made_.program.optimizer.kind = kind, made_.program.optimizer.momentum = 0.9, made_.program.average = average;
        return *this;
    }

    Builder& clip(double norm, double value, double l2) {
        made_.program.clip_norm = norm, made_.program.clip_value = value, made_.program.l2 = l2;
        return *this;
    }

    Network done() {
        made_.program.d_out = d_;
        if (made_.program.loss.kind == LossKind::quantile) made_.program.loss.quantiles = {0.1, 0.9};
        if (made_.program.loss.kind == LossKind::huber) made_.program.loss.constant = 0.5;
        return std::move(made_);
    }

private:
    Op start(Kind kind, std::size_t d_out) const {
        Op op;
        op.kind = kind, op.d_in = d_, op.d_out = d_out;
        return op;
    }

    Builder& add(const Op& op) {
        made_.program.ops.push_back(op);
        d_ = op.d_out;
        return *this;
    }

    int parameter(std::size_t size) {
        Parameter p;
        p.size = size, p.decay_factor = 1.0;
        made_.program.parameters.push_back(p);
        return static_cast<int>(made_.program.parameters.size()) - 1;
    }

    int buffer(std::size_t size) {
        made_.program.buffers.push_back(size);
        return static_cast<int>(made_.program.buffers.size()) - 1;
    }

    Network made_;
    std::size_t d_;
    std::uint32_t masks_ = 0;
};

// Returns n normal random numbers of a part of the random stream.
std::vector<double> normals(std::uint32_t part, std::size_t n) {
    std::vector<double> out(n);
    const std::int64_t row = 0;
    normal({.seed = 3, .purpose = Purpose::data, .epoch = 0, .part = part}, {.rows = {&row, 1}, .first = 0, .n = n}, out.data());
    return out;
}

}  // namespace

std::vector<Network> networks() {
    std::vector<Network> found;
    const auto add = [&found](Builder& b) { found.push_back(b.done()); };
    add(Builder("linear", 5, LossKind::mse).linear(3));
    add(Builder("one by one", 1, LossKind::mae).linear(1));
    add(Builder("wide", 130, LossKind::cross_entropy).linear(70).activation(Function::relu).linear(65).activation(Function::tanh).linear(10));
    add(Builder("without bias, scaled", 17, LossKind::mse).linear(33, false, 0.3).activation(Function::gelu).linear(16, true, 0.5));
    for (std::size_t f = 0; f < NAMES<Function>.size(); ++f) {
        const auto function = static_cast<Function>(f);
        if (function == Function::sqrt) continue;  // sqrt of negative numbers is NaN
        const bool learns = function == Function::prelu || function == Function::learned_swish;
        const double constant = function == Function::polynomial ? 3.0 : 0.4;
        Builder b("function " + std::to_string(f), 9, LossKind::mse);
        b.linear(20).activation(function, constant, false, learns ? 20 : 0).linear(18);
        add(b.activation(function, constant, true, learns ? 1 : 0).linear(4));
    }
    for (const Function gate : {Function::sigmoid, Function::relu, Function::gelu, Function::silu}) {
        Builder b("gate", 9, LossKind::huber);
        add(b.glu(21, gate).linear(3));
        found.back().smooth = found.back().smooth && gate != Function::relu;
    }
    for (std::size_t i = 0; i < NAMES<LossKind>.size(); ++i) {
        const auto loss = static_cast<LossKind>(i);
        add(Builder("loss", 6, loss).linear(12).activation(Function::tanh).linear(4));
        found.back().smooth = loss != LossKind::quantile && loss != LossKind::perceptron && loss != LossKind::mae;
    }
    for (std::size_t i = 0; i < NAMES<OptimizerKind>.size(); ++i) {
        const auto kind = static_cast<OptimizerKind>(i);
        Builder b("optimiser", 20, LossKind::mse);
        add(b.linear(40).activation(Function::tanh).linear(3).optimizer(kind, 0.9).clip(0.5, 0.2, 1e-3));
    }
    add(Builder("norms", 12, LossKind::mse).linear(24).norm(Kind::batch_norm).activation(Function::tanh).norm(Kind::layer_norm)
            .linear(18).norm(Kind::rms_norm).norm(Kind::group_norm, 3).activation(Function::silu).linear(2));
    add(Builder("residual", 20, LossKind::cross_entropy).linear(32).enter().norm(Kind::layer_norm).linear(70)
            .activation(Function::gelu).dropout(0.1).linear(32).leave().enter().enter().activation(Function::tanh).leave()
            .scale().linear(32).leave().linear(10));
    const std::vector<Category> categories = {{2, NONE, 1}, {5, NONE, 5}, {12, 0, 8}, {40, 0, 8}};
    for (const Numeric numeric : {Numeric::none, Numeric::plr, Numeric::pbld, Numeric::piecewise}) {
        Builder b("recipe " + std::to_string(static_cast<int>(numeric)), 14, LossKind::cross_entropy);
        b.columns(numeric, numeric == Numeric::none ? 0 : 7, numeric == Numeric::none ? 0 : 3, categories).scale();
        for (int i = 0; i < 3; ++i) b.linear(48, true, 0.15).activation(Function::selu, 0.0, true).dropout(0.15);
        add(b.linear(2, true, 0.15).optimizer(OptimizerKind::adam, 0.9));
    }
    // Learned values of layers and of units. A layer of one unit has both.
    add(Builder("learned, one unit", 20, LossKind::mse).linear(48).linear(1).activation(Function::prelu, 0.0, false, 1).linear(3));
    add(Builder("learned, both", 16, LossKind::cross_entropy).linear(64).activation(Function::prelu, 0.0, false, 1).linear(16)
            .activation(Function::learned_swish, 0.0, false, 16).linear(2).optimizer(OptimizerKind::sgd));
    add(Builder("learned, of the network", 16, LossKind::mse).linear(33).activation(Function::learned_swish, 0.0, false, 33)
            .linear(40).norm(Kind::layer_norm).activation(Function::learned_swish, 0.0, false, 1).shared(Function::learned_swish)
            .linear(2));
    // Large enough that every thread has a part of everything.
    add(Builder("shared norms", 64, LossKind::mse).linear(192).norm(Kind::batch_norm).activation(Function::prelu, 0.0, false, 1)
            .linear(192).norm(Kind::layer_norm).dropout(0.1).enter().norm(Kind::rms_norm).linear(192)
            .norm(Kind::group_norm, 3).leave().linear(10).clip(0.5, 0.2, 1e-3));
    add(Builder("shared gates", 64, LossKind::cross_entropy).glu(192, Function::silu).linear(192, false, 0.5).scale()
            .activation(Function::learned_swish, 0.0, true, 192).linear(10).optimizer(OptimizerKind::nesterov, 0.9));
    add(Builder("shared columns", 14, LossKind::poisson).columns(Numeric::pbld, 7, 3, categories).scale().linear(256, true, 0.1)
            .activation(Function::selu, 0.0, true).dropout(0.15).linear(160, true, 0.1).activation(Function::gelu).linear(2)
            .optimizer(OptimizerKind::adam, 0.9).clip(0.5, 0.2, 1e-3));
    return found;
}

Network streamed() {
    Builder b("streamed", 64, LossKind::mse);
    for (int i = 0; i < 3; ++i) b.enter().norm(Kind::layer_norm).activation(Function::gelu).leave();
    return b.linear(2).done();
}

template <class T>
Rows<T> rows_for(const Program& program, std::size_t n) {
    Rows<T> made;
    const std::vector<double> x = normals(1000, n * program.numeric), y = normals(1001, n * program.d_out);
    for (const double v : x) made.x.push_back(static_cast<T>(static_cast<float>(v)));
    const std::size_t Q = program.loss.kind == LossKind::quantile ? program.loss.quantiles.size() : 1;
    const std::size_t targets = program.d_out / Q;
    const bool classes = program.loss.kind == LossKind::cross_entropy;
    const bool count = program.loss.kind == LossKind::poisson || program.loss.kind == LossKind::binary_cross_entropy ||
                       program.loss.kind == LossKind::perceptron;
    for (std::size_t i = 0; i < n; ++i) {
        if (classes) made.classes.push_back(static_cast<std::int64_t>(i % program.d_out));
        for (std::size_t c = 0; c < targets && !classes; ++c) {
            const double v = y[i * targets + c];
            made.y.push_back(static_cast<T>(count ? (v > 0 ? 1.0f : 0.0f) : static_cast<float>(v)));
        }
        made.weight.push_back(static_cast<T>(1 + i % 3));
        for (const Category& c : program.ops[0].columns.categories) {
            made.codes.push_back(static_cast<std::int64_t>(i * 7) % (c.values + 1));
        }
    }
    made.table = {.rows = n,
                  .x = made.x.data(),
                  .stride = program.numeric,
                  .codes = made.codes.empty() ? nullptr : made.codes.data(),
                  .classes = classes ? made.classes.data() : nullptr,
                  .y = classes ? nullptr : made.y.data(),
                  .targets = classes ? 0 : targets,
                  .weight = made.weight.data()};
    return made;
}

template Rows<float> rows_for<float>(const Program&, std::size_t);
template Rows<double> rows_for<double>(const Program&, std::size_t);

std::vector<std::vector<float>> parameters_for(const Program& program) {
    std::vector<std::vector<float>> found;
    for (const Parameter& p : program.parameters) {
        const std::vector<double> drawn = normals(static_cast<std::uint32_t>(found.size()), p.size);
        // About 1/√d for the matrices of these networks, and of order 1 for short vectors.
        const double scale = p.size > 100 ? 0.2 : 0.5;
        std::vector<float> values;
        for (const double v : drawn) values.push_back(static_cast<float>(scale * v + (p.size > 100 ? 0.0 : 0.5)));
        found.push_back(std::move(values));
    }
    return found;
}

std::vector<std::vector<float>> buffers_for(const Program& program) {
    std::vector<std::vector<float>> found;
    for (const std::size_t size : program.buffers) {
        std::vector<float> values(size, 1.0f);
        const Columns& c = program.ops[0].columns;
        for (std::size_t i = 0; c.edges != NONE && i < size; ++i) values[i] = static_cast<float>(i % (c.n + 1)) - 3.0f;
        found.push_back(std::move(values));
    }
    return found;
}

}  // namespace multilayer::tests
