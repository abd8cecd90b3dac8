// The microbenchmarks of one instruction set. core.cmake compiles this file once per instruction set.
#include "runtime/microbenchmarks.h"

#include <iterator>

#include "runtime/simd.h"

#define UNROLL MULTILAYER_UNROLL
#define MULTILAYER_TEXT_(x) #x
#define MULTILAYER_TEXT(x) MULTILAYER_TEXT_(x)

namespace multilayer::MULTILAYER_ISA {
namespace {

using simd::LANES;
using simd::Vector;

// Registers: ROWS × VECTORS sums, VECTORS of b and one of a. These are 27 of 32, or 15 of 16 with one left for a
// product.
constexpr std::size_t VECTORS = 2;
constexpr std::size_t ROWS = simd::REGISTERS == 32 ? 12 : 6;
constexpr std::size_t COLUMNS = VECTORS * LANES;

void tile(std::size_t depth, const float* a, const float* b, float* c) {
    Vector sums[ROWS][VECTORS];
    UNROLL for (std::size_t i = 0; i < ROWS; ++i) {
        UNROLL for (std::size_t j = 0; j < VECTORS; ++j) sums[i][j] = simd::splat(0.0f);
    }
    for (std::size_t k = 0; k < depth; ++k, a += ROWS, b += COLUMNS) {
        Vector right[VECTORS];
        UNROLL for (std::size_t j = 0; j < VECTORS; ++j) right[j] = simd::load(b + j * LANES);
        UNROLL for (std::size_t i = 0; i < ROWS; ++i) {
            const Vector left = simd::splat(a[i]);
            UNROLL for (std::size_t j = 0; j < VECTORS; ++j) {
                sums[i][j] = simd::multiply_add(left, right[j], sums[i][j]);
            }
        }
    }
    UNROLL for (std::size_t i = 0; i < ROWS; ++i) {
        UNROLL for (std::size_t j = 0; j < VECTORS; ++j) simd::store(c + i * COLUMNS + j * LANES, sums[i][j]);
    }
}

// Parallel chains: more than eight, because the processor has up to eight additions in flight (two per cycle, four
// cycles each).
constexpr std::size_t CHAINS = simd::REGISTERS / 2;
constexpr std::size_t SUMS = CHAINS * LANES;
static_assert(MICROBENCHMARK_BLOCK % SUMS == 0);

void sum(std::size_t n, const float* x, float* partial) {
    Vector sums[CHAINS];
    UNROLL for (std::size_t j = 0; j < CHAINS; ++j) sums[j] = simd::splat(0.0f);
    for (std::size_t i = 0; i < n; i += SUMS) {
        UNROLL for (std::size_t j = 0; j < CHAINS; ++j) sums[j] = simd::add(sums[j], simd::load(x + i + j * LANES));
    }
    UNROLL for (std::size_t j = 0; j < CHAINS; ++j) simd::store(partial + j * LANES, sums[j]);
}

void triad(std::size_t n, float* y, const float* x, const float* z, float s) {
    const Vector scale = simd::splat(s);
    for (std::size_t i = 0; i < n; i += SUMS) {
        UNROLL for (std::size_t j = 0; j < CHAINS; ++j) {
            const std::size_t k = i + j * LANES;
            simd::store(y + k, simd::multiply_add(scale, simd::load(z + k), simd::load(x + k)));
        }
    }
}

}  // namespace

constinit const Microbenchmark microbenchmark{
    MULTILAYER_TEXT(MULTILAYER_ISA), std::data(simd::REQUIRES), std::size(simd::REQUIRES),
    ROWS, COLUMNS, SUMS, tile, sum, triad};

}  // namespace multilayer::MULTILAYER_ISA
