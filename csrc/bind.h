// What the files of the binding share. Each converts arguments, releases the GIL and calls the core.
//
// Ctrl-C: long calls go in slices of some milliseconds; between them the GIL is taken and Python's handlers run. One that
// raises ends the call after a whole step.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <stdexcept>

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

// How many steps or rows to take at once, so that a slice lasts some milliseconds.
class Slices {
public:
    explicit Slices(std::size_t first) : size_(first) {}

    // Takes `count` in slices: go(begin, n) without the GIL, false to stop; Python's signal handlers in between.
    template <class Go>
    void take(std::size_t count, Go go) {
        for (std::size_t begin = 0; begin < count;) {
            const std::size_t n = std::min(size_, count - begin);
            const auto start = std::chrono::steady_clock::now();
            bool on;
            {
                nb::gil_scoped_release unlocked;
                on = go(begin, n);
            }
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (!on) return;
            const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
            if (n == size_ && spent.count() < LONG / 2) size_ *= 2;
            if (spent.count() > LONG) size_ = std::max<std::size_t>(1, size_ / 2);
            begin += n;
        }
    }

private:
    static constexpr double LONG = 0.02;  // seconds
    std::size_t size_;
};

// The engine's and the predictor's parts of the module (bind_engine.cpp, bind_predict.cpp).
void bind_engine(nb::module_& m);
void bind_predict(nb::module_& m);

}  // namespace multilayer
