// What the files of the binding share. Each converts arguments, releases the GIL and calls the core.
//
// Ctrl-C: every 20 ms a long call of the main thread takes the GIL to let Python's handlers run. One that raises ends the
// call, as runtime/cancellation.h says. Other threads run no handlers, and must not want the GIL of an interpreter that
// ends meanwhile.
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

// Memory as an array that numpy owns.
template <class Array>
Array owned(std::unique_ptr<typename Array::Scalar[]> data, std::initializer_list<std::size_t> shape) {
    nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<typename Array::Scalar*>(p); });
    return Array(data.release(), shape, owner);
}

// An uninitialised array for numpy to own, filled by fill(T*) without the GIL.
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

// Python's main thread, set as the module is loaded and in forked children.
inline std::atomic<unsigned long> main_thread = 0;

// go(stop) without the GIL; throws what a handler of Python's raised meanwhile, or KeyboardInterrupt where `asked` was set.
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

// The engine's and the predictor's parts of the module (engine.cpp, predict.cpp).
void bind_engine(nb::module_& m);
void bind_predict(nb::module_& m);

}  // namespace multilayer
