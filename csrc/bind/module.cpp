// The Python module multilayer.core._core. It converts arguments, releases the GIL and calls the core. It computes
// nothing.
//
// The callers (random.py, machine.py) validate their arguments. A std::invalid_argument of the core arrives in Python
// as ValueError.
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/common.h"
#include "runtime/machine.h"
#include "runtime/random.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using multilayer::Matrix;
using multilayer::Rows;
using multilayer::Vector;
using multilayer::filled;

// Wraps f(stream, window, out, extra...) as a Python function of (seed, purpose, epoch, part, rows, unit, units,
// extra...).
template <class T, class... Extra>
auto windowed(void (*f)(const multilayer::Stream&, const multilayer::Window&, T*, Extra...)) {
    return [f](std::uint64_t seed, std::uint32_t purpose, std::uint32_t epoch, std::uint32_t part, const Rows& rows,
               std::uint64_t unit, std::uint64_t units, Extra... extra) {
        const multilayer::Stream stream{seed, static_cast<multilayer::Purpose>(purpose), epoch, part};
        const multilayer::Window window{{rows.data(), rows.size()}, unit, units};
        return filled<Matrix<T>>({rows.size(), units}, [&](T* out) { f(stream, window, out, extra...); });
    };
}

void bind_random(nb::module_& m) {
    using multilayer::Purpose;
    nb::dict purposes;
    for (const auto& [name, purpose] : multilayer::PURPOSES) purposes[name] = static_cast<std::uint32_t>(purpose);
    m.attr("PURPOSES") = purposes;

    m.def("philox", [](std::array<std::uint32_t, 4> counter, std::uint64_t seed) {
        return multilayer::philox(counter, seed);
    }, "counter"_a, "seed"_a);
    m.def("bits", windowed(multilayer::bits), "seed"_a, "purpose"_a, "epoch"_a, "part"_a, "rows"_a, "unit"_a,
          "units"_a);
    m.def("uniform", windowed(multilayer::uniform), "seed"_a, "purpose"_a, "epoch"_a, "part"_a, "rows"_a, "unit"_a,
          "units"_a);
    m.def("normal", windowed(multilayer::normal), "seed"_a, "purpose"_a, "epoch"_a, "part"_a, "rows"_a, "unit"_a,
          "units"_a);
    m.def("keep", windowed(multilayer::keep), "seed"_a, "purpose"_a, "epoch"_a, "part"_a, "rows"_a, "unit"_a,
          "units"_a, "p"_a);
    m.def("permutation", [](std::uint64_t seed, std::uint32_t epoch, std::size_t n) {
        const multilayer::Stream stream{seed, Purpose::shuffle, epoch, 0};
        return filled<Vector<std::int64_t>>({n}, [&](std::int64_t* out) { multilayer::permutation(stream, {out, n}); });
    }, "seed"_a, "epoch"_a, "n"_a);
    m.def("derive", multilayer::derive, "seed"_a, "member"_a);
}

template <int N>
using Floats = nb::ndarray<const float, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

const multilayer::Microbenchmark& microbenchmark_named(const std::string& name) {
    for (const multilayer::Microbenchmark* loops : multilayer::microbenchmarks()) {
        if (loops->name == name) return *loops;
    }
    throw std::invalid_argument("this processor has no microbenchmark named '" + name + "'");
}

void check_length(std::size_t n) {
    if (n % multilayer::MICROBENCHMARK_BLOCK != 0) {
        throw std::invalid_argument("the length must be a multiple of " + std::to_string(multilayer::MICROBENCHMARK_BLOCK) +
                                    ", got " + std::to_string(n));
    }
}

void bind_machine(nb::module_& m) {
    using Unlocked = nb::call_guard<nb::gil_scoped_release>;
    m.def("instruction_sets", multilayer::instruction_sets);
    m.def("usable_threads", multilayer::usable_threads);
    m.def("cpu_quota", multilayer::cpu_quota, "root"_a);
    m.def("matrix_peak", multilayer::matrix_peak, "threads"_a, "seconds"_a, Unlocked());
    m.def("read_bandwidth", multilayer::read_bandwidth, "bytes"_a, "threads"_a, "seconds"_a, Unlocked());
    m.def("triad_bandwidth", multilayer::triad_bandwidth, "bytes"_a, "threads"_a, "seconds"_a, Unlocked());

    // The single microbenchmarks, so that tests can compare their results with numpy.
    m.def("microbenchmarks", [] {
        nb::dict sizes;
        for (const multilayer::Microbenchmark* loops : multilayer::microbenchmarks()) {
            sizes[loops->name] = nb::make_tuple(loops->rows, loops->columns);
        }
        return sizes;
    });
    m.def("microbenchmark_tile", [](const std::string& name, const Floats<2>& a, const Floats<2>& b) {
        const multilayer::Microbenchmark& loops = microbenchmark_named(name);
        if (a.shape(0) != b.shape(0) || a.shape(1) != loops.rows || b.shape(1) != loops.columns) {
            throw std::invalid_argument("the panels must be (depth, rows) and (depth, columns) of the microbenchmark");
        }
        return filled<Matrix<float>>({loops.rows, loops.columns},
                                     [&](float* c) { loops.tile(a.shape(0), a.data(), b.data(), c); });
    }, "name"_a, "a"_a, "b"_a);
    m.def("microbenchmark_sum", [](const std::string& name, const Floats<1>& x) {
        const multilayer::Microbenchmark& loops = microbenchmark_named(name);
        check_length(x.size());
        return filled<Vector<float>>({loops.sums}, [&](float* out) { loops.sum(x.size(), x.data(), out); });
    }, "name"_a, "x"_a);
    m.def("microbenchmark_triad", [](const std::string& name, const Floats<1>& x, const Floats<1>& z, float s) {
        const multilayer::Microbenchmark& loops = microbenchmark_named(name);
        check_length(x.size());
        if (z.size() != x.size()) throw std::invalid_argument("x and z must have the same length");
        return filled<Vector<float>>({x.size()},
                                     [&](float* y) { loops.triad(x.size(), y, x.data(), z.data(), s); });
    }, "name"_a, "x"_a, "z"_a, "s"_a);
}

// Sets `main_thread`. In a forked child, the main thread is the thread that forked.
void know_main_thread() {
    using multilayer::main_thread;
    main_thread = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
    const nb::object os = nb::module_::import_("os");
    if (!nb::hasattr(os, "register_at_fork")) return;
    os.attr("register_at_fork")("after_in_child"_a = nb::cpp_function([] { main_thread = PyThread_get_thread_ident(); }));
}

}  // namespace

NB_MODULE(_core, m) {
    // If Python exits while a daemon thread is in a call, the objects of the call are never released.
    nb::set_leak_warnings(false);
    know_main_thread();
    m.attr("__version__") = MULTILAYER_VERSION;
    bind_random(m);
    bind_machine(m);
    multilayer::bind_engine(m);
}
