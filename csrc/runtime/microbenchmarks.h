// The loops whose speed is this machine's speed. One source, compiled once per instruction set.
#pragma once

#include <cstddef>

namespace multilayer {

struct Microbenchmark {
    const char* name;           // "baseline", "avx2", ...
    const char* const* needs;   // instruction sets, n_needs of them
    std::size_t n_needs;
    std::size_t rows, columns;  // of the tile that `tile` keeps in registers
    std::size_t sums;           // that `sum` keeps in registers

    // c (rows, columns) = aᵀ b;   a (depth, rows), b (depth, columns): panels packed in the order they are read.
    void (*tile)(std::size_t depth, const float* a, const float* b, float* c);

    // partial (sums) = column sums of x (n / sums, sums);   n a multiple of PROBE_BLOCK.
    void (*sum)(std::size_t n, const float* x, float* partial);

    // y = x + s z;   all (n), n a multiple of PROBE_BLOCK.
    void (*triad)(std::size_t n, float* y, const float* x, const float* z, float s);
};

constexpr std::size_t MICROBENCHMARK_BLOCK = 256;  // floats: 16 of the widest vectors

// MULTILAYER_ISAS is the build's list, "ISA(baseline) ISA(avx2) ...", narrowest first.
#define ISA(name)                               \
    namespace name {                            \
    extern const Microbenchmark microbenchmark; \
    }
MULTILAYER_ISAS
#undef ISA

}  // namespace multilayer
