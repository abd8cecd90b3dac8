// Python bindings of the training cores. Python builds a Program field by field. A core then reads its arrays in place.
//
// Only engines/fused_engine.py and fused_program.py use these bindings, and they validate category codes and class
// numbers. The bindings validate shapes and row numbers, so that a core never reads outside an array. Errors arrive in
// Python as ValueError or IndexError.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "bind/common.h"
#include "fused/fused.h"
#include "kernels/kernels.h"
#include "program.h"
#include "reference/reference.h"

namespace multilayer {
namespace {

using namespace nb::literals;

template <class E>
void bind_enum(nb::module_& m, const char* name) {
    nb::enum_<E> bound(m, name);
    for (std::size_t i = 0; i < NAMES<E>.size(); ++i) bound.value(NAMES<E>[i], static_cast<E>(i));
}

void bind_program(nb::module_& m) {
    m.attr("NONE") = NONE;
    nb::class_<Category>(m, "Category")
        .def(nb::init<>())
        .def_rw("values", &Category::values)
        .def_rw("table", &Category::table)
        .def_rw("width", &Category::width);
    nb::class_<Columns>(m, "Columns")
        .def(nb::init<>())
        .def_rw("numeric", &Columns::numeric)
        .def_rw("n", &Columns::n)
        .def_rw("K", &Columns::K)
        .def_rw("D", &Columns::D)
        .def_rw("frequency", &Columns::frequency)
        .def_rw("phase", &Columns::phase)
        .def_rw("weight", &Columns::weight)
        .def_rw("bias", &Columns::bias)
        .def_rw("edges", &Columns::edges)
        .def_rw("categories", &Columns::categories);
    nb::class_<CountedRange>(m, "CountedRange")
        .def(nb::init<>())
        .def_rw("inactive_low", &CountedRange::inactive_low)
        .def_rw("inactive_high", &CountedRange::inactive_high)
        .def_rw("flat_low", &CountedRange::flat_low)
        .def_rw("flat_high", &CountedRange::flat_high);
    nb::class_<Op>(m, "Op")
        .def(nb::init<>())
        .def_rw("kind", &Op::kind)
        .def_rw("d_in", &Op::d_in)
        .def_rw("d_out", &Op::d_out)
        .def_rw("weight", &Op::weight)
        .def_rw("bias", &Op::bias)
        .def_rw("factor", &Op::factor)
        .def_rw("function", &Op::function)
        .def_rw("constant", &Op::constant)
        .def_rw("learned", &Op::learned)
        .def_rw("blend", &Op::blend)
        .def_rw("counted", &Op::counted)
        .def_rw("p", &Op::p)
        .def_rw("part", &Op::part)
        .def_rw("eps", &Op::eps)
        .def_rw("groups", &Op::groups)
        .def_rw("momentum", &Op::momentum)
        .def_rw("mean", &Op::mean)
        .def_rw("var", &Op::var)
        .def_rw("columns", &Op::columns);
    nb::class_<Parameter>(m, "Parameter")
        .def(nb::init<>())
        .def_rw("size", &Parameter::size)
        .def_rw("rate_factor", &Parameter::rate_factor)
        .def_rw("decay_factor", &Parameter::decay_factor);
    nb::class_<Loss>(m, "Loss")
        .def(nb::init<>())
        .def_rw("kind", &Loss::kind)
        .def_rw("constant", &Loss::constant)
        .def_rw("quantiles", &Loss::quantiles);
    nb::class_<Optimizer>(m, "Optimizer")
        .def(nb::init<>())
        .def_rw("kind", &Optimizer::kind)
        .def_rw("momentum", &Optimizer::momentum)
        .def_rw("beta1", &Optimizer::beta1)
        .def_rw("beta2", &Optimizer::beta2)
        .def_rw("eps", &Optimizer::eps);
    nb::class_<Program>(m, "Program")
        .def(nb::init<>())
        .def_rw("numeric", &Program::numeric)
        .def_rw("d_out", &Program::d_out)
        .def_rw("ops", &Program::ops)
        .def_rw("parameters", &Program::parameters)
        .def_rw("buffers", &Program::buffers)
        .def_rw("loss", &Program::loss)
        .def_rw("optimizer", &Program::optimizer)
        .def_rw("seed", &Program::seed)
        .def_rw("l2", &Program::l2)
        .def_rw("clip_norm", &Program::clip_norm)
        .def_rw("clip_value", &Program::clip_value)
        .def_rw("average", &Program::average)
        .def_rw("statistics_every", &Program::statistics_every);
}

// A Table and the arrays that it points to.
template <class T>
struct HeldTable {
    Strided<T> x;
    std::optional<Array<std::int64_t, 2>> codes;
    std::optional<Array<std::int64_t, 1>> classes;
    std::optional<Array<T, 2>> y;
    std::optional<Array<T, 1>> weight;

    HeldTable(Strided<T> x_, std::optional<Array<std::int64_t, 2>> codes_, std::optional<Array<std::int64_t, 1>> classes_,
              std::optional<Array<T, 2>> y_, std::optional<Array<T, 1>> weight_)
        : x(x_), codes(codes_), classes(classes_), y(y_), weight(weight_) {
        const auto rows = x.shape(0);
        require(x.shape(1) < 2 || x.stride(1) == 1, "the values of a row of x must be contiguous");
        require(rows < 2 || x.stride(0) >= 0, "x must not have a negative row stride");
        require(!codes || codes->shape(0) == rows, "codes must have as many rows as x");
        require(!classes || classes->shape(0) == rows, "classes must have as many rows as x");
        require(!y || y->shape(0) == rows, "y must have as many rows as x");
        require(!weight || weight->shape(0) == rows, "weight must have as many rows as x");
    }

    Table<T> table() const {
        return {.rows = x.shape(0),
                .x = x.data(),
                .stride = x.shape(0) < 2 ? x.shape(1) : static_cast<std::size_t>(x.stride(0)),
                .codes = codes ? codes->data() : nullptr,
                .classes = classes ? classes->data() : nullptr,
                .y = y ? y->data() : nullptr,
                .targets = y ? y->shape(1) : 0,
                .weight = weight ? weight->data() : nullptr};
    }
};

// A core with the sizes that its arguments are checked against.
template <class T>
class BoundCore {
public:
    BoundCore(const Program& program, std::unique_ptr<Core<T>> core) : program_(program), core_(std::move(core)) {}

    // Returns (loss, norm, first bad step or None, whether all parameters are finite, statistics, unit_counts). `loss`
    // and `norm` have one value per step, up to the bad step. `statistics` is Core::statistics with one row per recorded
    // step. `unit_counts` is Core::unit_counts, which is empty without `count_units`.
    nb::tuple run(const HeldTable<T>& held, const Rows& rows, const Rows& ids, std::size_t batch, std::uint32_t epoch,
                  const Doubles& rate, const Doubles& decay, const Doubles& dropout, bool count_units) {
        check(held, rows, true);
        require(batch > 0 && rows.size() == ids.size(),
                "batch must be at least 1, and rows and ids must have the same length");
        const Order order{{rows.data(), rows.size()}, {ids.data(), ids.size()}, batch, epoch};
        const std::size_t steps = order.steps();
        require(rate.size() == steps && decay.size() == steps && dropout.size() == steps,
                "rate, decay and dropout must have one value per step");
        const Table<T> table = held.table();
        auto loss = std::make_unique<double[]>(steps), norm = std::make_unique<double[]>(steps);
        std::size_t bad = FINISHED;
        const ExclusiveCall call(*this);
        core_->statistics.clear();
        core_->counts_units = count_units;
        unlocked([&](const StopRequested& stop) {
            bad = core_->run(table, order, {rate.data(), decay.data(), dropout.data()}, loss.get(), norm.get(), stop);
        }, &asked_);
        const std::size_t count = bad == FINISHED ? steps : bad + 1;
        nb::object where = nb::none();
        if (bad != FINISHED) where = nb::int_(bad);
        return nb::make_tuple(owned<Vector<double>>(std::move(loss), {count}),
                              owned<Vector<double>>(std::move(norm), {count}), where, core_->finite(),
                              copied(core_->statistics), copied(core_->unit_counts));
    }

    // Returns (loss, gradients, buffers) with a flat array for each parameter and buffer.
    nb::tuple gradients(const HeldTable<T>& held, const Rows& rows, const Rows& ids, std::uint32_t epoch, double dropout) {
        check(held, rows, true);
        require(rows.size() == ids.size(), "rows and ids must have the same length");
        std::vector<std::unique_ptr<T[]>> found;
        std::vector<T*> into, buffers;
        for (const Parameter& p : program_.parameters) into.push_back(fresh(found, p.size));
        for (const std::size_t size : program_.buffers) buffers.push_back(fresh(found, size));
        const Order order{{rows.data(), rows.size()}, {ids.data(), ids.size()}, std::max<std::size_t>(1, rows.size()),
                          epoch};
        double loss = 0;
        const ExclusiveCall call(*this);
        unlocked([&](const StopRequested& stop) {
            loss = core_->gradients(held.table(), order, dropout, into, buffers, stop);
        }, &asked_);
        nb::list mine, theirs;
        for (std::size_t i = 0; i < found.size(); ++i) {
            const bool parameter = i < into.size();
            const std::size_t size = parameter ? program_.parameters[i].size : program_.buffers[i - into.size()];
            (parameter ? mine : theirs).append(owned<Vector<T>>(std::move(found[i]), {size}));
        }
        return nb::make_tuple(loss, mine, theirs);
    }

    double apply(const std::vector<Array<T, 1>>& gradients, const std::vector<Array<T, 1>>& buffers, double rate,
                 double decay) {
        require(gradients.size() == program_.parameters.size() && buffers.size() == program_.buffers.size(),
                "there must be one array for each gradient and each buffer");
        std::vector<const T*> from, values;
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            require(gradients[i].size() == program_.parameters[i].size, "a gradient must have the size of its parameter");
            from.push_back(gradients[i].data());
        }
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            require(buffers[i].size() == program_.buffers[i], "a buffer must have the size given by the program");
            values.push_back(buffers[i].data());
        }
        const ExclusiveCall call(*this);
        const nb::gil_scoped_release released;
        return core_->apply(from, values, rate, decay);
    }

    // Returns the raw outputs (rows, d_out).
    Matrix<T> outputs(const HeldTable<T>& held, const Rows& rows, bool averaged) {
        check(held, rows, false);
        const Table<T> table = held.table();
        const std::size_t C = program_.d_out;
        auto out = std::make_unique_for_overwrite<T[]>(rows.size() * C);
        const std::span<const std::int64_t> places{rows.data(), rows.size()};
        const ExclusiveCall call(*this);
        unlocked([&](const StopRequested& stop) { core_->outputs(table, places, averaged, out.get(), stop); }, &asked_);
        return owned<Matrix<T>>(std::move(out), {rows.size(), C});
    }

    // Returns all tensors of a group, concatenated.
    Vector<T> read(Group group) {
        const ExclusiveCall call(*this);
        const std::size_t n = group == Group::buffers ? program_.buffers.size() : program_.parameters.size();
        std::size_t size = 0;
        for (std::size_t i = 0; i < n; ++i) size += size_of(group, i);
        return filled<Vector<T>>({size}, [&](T* out) {
            for (std::size_t i = 0; i < n; out += size_of(group, i++)) core_->read(group, i, out);
        });
    }

    void write(Group group, std::size_t place, const Array<T, 1>& values) {
        require(values.size() == size_of(group, place), "a tensor must have the size given by the program");
        const ExclusiveCall call(*this);
        core_->write(group, place, values.data());
    }

    std::uint64_t step() {
        const ExclusiveCall call(*this);
        return core_->step;
    }
    void set_step(std::uint64_t value) {
        const ExclusiveCall call(*this);
        core_->step = value;
    }
    std::size_t bytes() {
        const ExclusiveCall call(*this);
        return core_->bytes();
    }

    // Ends a call that runs in another thread.
    void stop() { asked_ = true; }

private:
    // Guards a call: only one call may run at a time, including calls by a signal handler that interrupted another
    // call.
    struct ExclusiveCall {
        explicit ExclusiveCall(BoundCore& core) : core_(core) {
            if (core_.busy_.exchange(true)) throw std::runtime_error("the engine is already running: wait until it ends");
            core_.asked_ = false;
        }
        ~ExclusiveCall() { core_.busy_ = false; }
        BoundCore& core_;
    };

    template <class V>
    static Vector<V> copied(const std::vector<V>& found) {
        return filled<Vector<V>>({found.size()}, [&](V* out) { std::ranges::copy(found, out); });
    }

    static T* fresh(std::vector<std::unique_ptr<T[]>>& found, std::size_t size) {
        return found.emplace_back(std::make_unique<T[]>(size)).get();
    }

    std::size_t size_of(Group group, std::size_t place) const {
        const std::size_t slots = program_.optimizer.slots();
        require((group != Group::slot0 || slots > 0) && (group != Group::slot1 || slots > 1) &&
                    (group != Group::averages || program_.average >= 0),
                "the program has no tensors of this group");
        return group == Group::buffers ? program_.buffers.at(place) : program_.parameters.at(place).size;
    }

    // Throws if a call would read outside the table.
    void check(const HeldTable<T>& held, const Rows& rows, bool training) const {
        const std::size_t categories = program_.ops.empty() ? 0 : program_.ops[0].columns.categories.size();
        require(held.x.shape(1) == program_.numeric, "x must have one column for each numeric input of the network");
        require((held.codes ? held.codes->shape(1) : 0) == categories,
                "codes must have one column for each categorical input of the network");
        if (training) {
            const bool classes = program_.loss.kind == LossKind::cross_entropy;
            const std::size_t Q = program_.loss.kind == LossKind::quantile ? program_.loss.quantiles.size() : 1;
            require(classes ? held.classes.has_value() != held.y.has_value() : held.y && !held.classes,
                    "cross_entropy needs either classes or y, and other losses need y");
            require(!held.y || held.y->shape(1) * Q == program_.d_out,
                    "y must have one column for each target of the network");
        }
        const auto end = static_cast<std::int64_t>(held.x.shape(0));
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const std::int64_t row = rows.data()[i];
            if (row < 0 || row >= end) {
                throw std::out_of_range("row " + std::to_string(row) + " is not in a table of " + std::to_string(end));
            }
        }
    }

    Program program_;
    std::unique_ptr<Core<T>> core_;
    std::atomic<bool> busy_ = false, asked_ = false;
};

template <class T>
void bind_core(nb::module_& m, const char* table, const char* core) {
    const auto array = [](const char* name) { return nb::arg(name).noconvert(); };
    nb::class_<HeldTable<T>>(m, table)
        .def(nb::init<Strided<T>, std::optional<Array<std::int64_t, 2>>, std::optional<Array<std::int64_t, 1>>,
                      std::optional<Array<T, 2>>, std::optional<Array<T, 1>>>(),
             array("x"), array("codes").none(), array("classes").none(), array("y").none(), array("weight").none());
    nb::class_<BoundCore<T>>(m, core)
        .def("run", &BoundCore<T>::run, "table"_a, array("rows"), array("ids"), "batch"_a, "epoch"_a, array("rate"),
             array("decay"), array("dropout"), "count_units"_a = false)
        .def("gradients", &BoundCore<T>::gradients, "table"_a, array("rows"), array("ids"), "epoch"_a, "dropout"_a)
        .def("apply", &BoundCore<T>::apply, array("gradients"), array("buffers"), "rate"_a, "decay"_a)
        .def("outputs", &BoundCore<T>::outputs, "table"_a, array("rows"), "averaged"_a)
        .def("read", &BoundCore<T>::read, "group"_a)
        .def("write", &BoundCore<T>::write, "group"_a, "place"_a, array("values"))
        .def_prop_rw("step", &BoundCore<T>::step, &BoundCore<T>::set_step)
        .def_prop_ro("bytes", &BoundCore<T>::bytes)
        .def("stop", &BoundCore<T>::stop);
}

}  // namespace

void bind_engine(nb::module_& m) {
    bind_enum<Kind>(m, "Kind");
    bind_enum<Function>(m, "Function");
    bind_enum<Numeric>(m, "Numeric");
    bind_enum<LossKind>(m, "LossKind");
    bind_enum<OptimizerKind>(m, "OptimizerKind");
    bind_enum<Group>(m, "Group");
    bind_program(m);
    bind_core<float>(m, "TableFloat", "CoreFloat");
    bind_core<double>(m, "TableDouble", "CoreDouble");
    m.def("reference_float", [](const Program& p) { return new BoundCore(p, make_reference<float>(p)); }, "program"_a,
          nb::rv_policy::take_ownership);
    m.def("reference_double", [](const Program& p) { return new BoundCore(p, make_reference<double>(p)); }, "program"_a,
          nb::rv_policy::take_ownership);
    m.def("fused", [](const Program& p, std::size_t threads, const std::string& kernels, bool all_threads) {
        return new BoundCore(p, make_fused(p, threads, kernels, all_threads));
    }, "program"_a, "threads"_a, "kernels"_a = "", nb::kw_only(), "all_threads"_a = false, nb::rv_policy::take_ownership);
    m.def("fused_kernels", fused_kernels);
    bind_predict(m);
}

}  // namespace multilayer
