// Helpers for the files of the binding. Each binding converts its arguments, releases the GIL and calls the core.
//
// Ctrl-C: a long call on the main thread acquires the GIL every 20 ms and runs Python's signal handlers. If a handler
// raises an exception, the call ends (see runtime/cancellation.h). Other threads run no handlers and do not acquire the
// GIL, because the interpreter may be shutting down.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <atomic>
#include <initializer_list>
#include <memory>
#include <stdexcept>

#include "runtime/cancellation.h"
#include "runtime/denormals.h"

namespace multilayer {

namespace nb = nanobind;

using Rows = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig>;
template <class T>
using Vector = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;

template <class T, int N>
using Array = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T>
using Strided = nb::ndarray<const T, nb::ndim<2>, nb::device::cpu>;
using Doubles = Array<double, 1>;

inline void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

// Returns an array that takes ownership of `data`.
template <class Array>
Array owned(std::unique_ptr<typename Array::Scalar[]> data, std::initializer_list<std::size_t> shape) {
    nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<typename Array::Scalar*>(p); });
    return Array(data.release(), shape, owner);
}

// Returns an array owned by numpy. fill(T*) writes its values without the GIL.
template <class Array, class Fill>
Array filled(std::initializer_list<std::size_t> shape, Fill fill) {
    std::size_t size = 1;
    for (const std::size_t d : shape) size *= d;
    auto data = std::make_unique_for_overwrite<typename Array::Scalar[]>(size);
    {
        nb::gil_scoped_release unlocked;
        fill(data.get());
    }
    return owned<Array>(std::move(data), shape);
}

// The identifier of Python's main thread, set when the module is loaded and in forked children.
inline std::atomic<unsigned long> main_thread = 0;

// Calls go(stop) without the GIL. Throws the exception of a signal handler, or KeyboardInterrupt if `asked` was set.
template <class Go>
void unlocked(Go go, const std::atomic<bool>* asked = nullptr) {
    const bool handles = PyThread_get_thread_ident() == main_thread;
    const StopRequested stop = [asked, handles] {
        if (asked && *asked) return true;
        if (!handles) return false;
        const AllowDenormals theirs;
        const nb::gil_scoped_acquire locked;
        return PyErr_CheckSignals() != 0;
    };
    {
        const nb::gil_scoped_release released;
        go(stop);
    }
    if (asked && *asked && !PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);
    if (PyErr_Occurred() || PyErr_CheckSignals() != 0) throw nb::python_error();
}

// Bind the engine (engine.cpp) and the prediction core (predict.cpp).
void bind_engine(nb::module_& m);
void bind_predict(nb::module_& m);

}  // namespace multilayer
