// The loops that measure the speed of this machine. The source is compiled once per instruction set.
#pragma once

#include <cstddef>

namespace multilayer {

struct Microbenchmark {
    const char* name;           // "baseline", "avx2", ...
    const char* const* needs;   // required instruction sets, n_needs of them
    std::size_t n_needs;
    std::size_t rows, columns;  // of the tile that `tile` keeps in registers
    std::size_t sums;           // number of sums that `sum` keeps in registers

    // c (rows, columns) = aᵀ b for a (depth, rows) and b (depth, columns). The panels are packed in the order of
    // reading.
    void (*tile)(std::size_t depth, const float* a, const float* b, float* c);

    // partial (sums) = column sums of x (n / sums, sums). n is a multiple of MICROBENCHMARK_BLOCK.
    void (*sum)(std::size_t n, const float* x, float* partial);

    // y = x + s z for arrays of n values. n is a multiple of MICROBENCHMARK_BLOCK.
    void (*triad)(std::size_t n, float* y, const float* x, const float* z, float s);
};

constexpr std::size_t MICROBENCHMARK_BLOCK = 256;  // floats: 16 of the widest vectors

// MULTILAYER_ISAS is the list of the build, "ISA(baseline) ISA(avx2) ...", narrowest first.
#define ISA(name)                               \
    namespace name {                            \
    extern const Microbenchmark microbenchmark; \
    }
MULTILAYER_ISAS
#undef ISA

}  // namespace multilayer
