// What the files of the binding share. Each converts arguments, releases the GIL and calls the core.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <memory>

namespace multilayer {

namespace nb = nanobind;

using Rows = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig>;
template <class T>
using Vector = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;

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

// The engine's part of the module (bind_engine.cpp).
void bind_engine(nb::module_& m);

}  // namespace multilayer
