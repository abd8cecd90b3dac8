// Aligned memory for vector code.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace multilayer {

// An array of floats, aligned to a cache line and initialized to zero.
class Floats {
public:
    Floats() = default;
    explicit Floats(std::size_t n);
    float* data() { return data_.get(); }
    const float* data() const { return data_.get(); }
    std::size_t size() const { return size_; }

private:
    struct Free {
        void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
    };
    std::unique_ptr<float[], Free> data_;
    std::size_t size_ = 0;
};

}  // namespace multilayer
