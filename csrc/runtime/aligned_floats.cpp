// Allocation of aligned memory.
#include "runtime/aligned_floats.h"

#include <algorithm>

namespace multilayer {

Floats::Floats(std::size_t n)
    : data_(static_cast<float*>(::operator new[](std::max<std::size_t>(n, 1) * sizeof(float), std::align_val_t{64}))),
      size_(n) {
    std::fill_n(data_.get(), n, 0.0f);
}

}  // namespace multilayer
