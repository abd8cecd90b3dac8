// Instruction sets. This is the only file with their intrinsics and with the names that compilers give them.
//
// A source that includes this file is compiled once per instruction set. core.cmake lists the instruction sets and passes
// the namespace of each, MULTILAYER_ISA. Vector, a vector of floats, has the same operations for each:
//
//     isa        LANES   REGISTERS   multiply_add
//     baseline   4       16          two roundings (SSE2, part of x86-64)
//     avx2       8       16          one
//     avx512     16      32          one
//     baseline   4       32          one (NEON, part of AArch64)
//     baseline   1       16          two (any other processor)
//
// Words holds 32 random bits in the low half of each 64 bits. The high half may have any value: multiply_words reads only
// low halves and returns full products, so that a round of the generator needs no shuffles.
//
// Everything here has internal linkage: otherwise the linker could give a caller the copy of a wider instruction set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#elif defined(__aarch64__) || defined(_M_ARM64)
#include <arm_neon.h>
#endif

// For a loop of constant length over an array of vectors. Early unrolling keeps the array in registers.
#if defined(__clang__)
#define MULTILAYER_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define MULTILAYER_UNROLL _Pragma("GCC unroll 32")
#else
#define MULTILAYER_UNROLL
#endif

namespace multilayer::simd {
namespace {

#if defined(__AVX512F__)

using Vector = __m512;
constexpr std::size_t LANES = 16, REGISTERS = 32;
constexpr const char* REQUIRES[] = {"avx512f", "fma"};
inline Vector load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vector a) { _mm512_storeu_ps(p, a); }
inline Vector splat(float a) { return _mm512_set1_ps(a); }
inline Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
inline Vector subtract(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
inline Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
inline Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
inline std::uint32_t at_most(Vector a, Vector b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
inline std::uint32_t below(Vector a, Vector b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
using Words = __m512i;
constexpr std::size_t WORDS = 8;
inline Words load_words(const std::uint32_t* p) { return _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i*)p)); }
inline void store_words(std::uint32_t* p, Words a) { _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi64_epi32(a)); }
inline Words splat_words(std::uint32_t a) { return _mm512_set1_epi64(a); }
inline Words multiply_words(Words a, Words b) { return _mm512_mul_epu32(a, b); }
inline Words high_words(Words a) { return _mm512_srli_epi64(a, 32); }
inline Words xor_words(Words a, Words b, Words c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }

#elif defined(__AVX2__)

using Vector = __m256;
constexpr std::size_t LANES = 8, REGISTERS = 16;
constexpr const char* REQUIRES[] = {"avx2", "fma"};
inline Vector load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vector a) { _mm256_storeu_ps(p, a); }
inline Vector splat(float a) { return _mm256_set1_ps(a); }
inline Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
inline Vector subtract(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
inline Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
inline Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
inline std::uint32_t lanes_of(Vector mask) { return static_cast<std::uint32_t>(_mm256_movemask_ps(mask)); }
inline std::uint32_t at_most(Vector a, Vector b) { return lanes_of(_mm256_cmp_ps(a, b, _CMP_LE_OQ)); }
inline std::uint32_t below(Vector a, Vector b) { return lanes_of(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
using Words = __m256i;
constexpr std::size_t WORDS = 4;
inline Words load_words(const std::uint32_t* p) { return _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i*)p)); }
inline void store_words(std::uint32_t* p, Words a) {
    const Words low = _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(low));
}
inline Words splat_words(std::uint32_t a) { return _mm256_set1_epi64x(a); }
inline Words multiply_words(Words a, Words b) { return _mm256_mul_epu32(a, b); }
inline Words high_words(Words a) { return _mm256_srli_epi64(a, 32); }
inline Words xor_words(Words a, Words b, Words c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }

#elif defined(__x86_64__) || defined(_M_X64)

using Vector = __m128;
constexpr std::size_t LANES = 4, REGISTERS = 16;
constexpr const char* REQUIRES[] = {"sse2"};
inline Vector load(const float* p) { return _mm_loadu_ps(p); }
inline void store(float* p, Vector a) { _mm_storeu_ps(p, a); }
inline Vector splat(float a) { return _mm_set1_ps(a); }
inline Vector add(Vector a, Vector b) { return _mm_add_ps(a, b); }
inline Vector subtract(Vector a, Vector b) { return _mm_sub_ps(a, b); }
inline Vector multiply(Vector a, Vector b) { return _mm_mul_ps(a, b); }
inline Vector multiply_add(Vector a, Vector b, Vector c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
inline std::uint32_t lanes_of(Vector mask) { return static_cast<std::uint32_t>(_mm_movemask_ps(mask)); }
inline std::uint32_t at_most(Vector a, Vector b) { return lanes_of(_mm_cmple_ps(a, b)); }
inline std::uint32_t below(Vector a, Vector b) { return lanes_of(_mm_cmplt_ps(a, b)); }
using Words = __m128i;
constexpr std::size_t WORDS = 2;
inline Words load_words(const std::uint32_t* p) {
    return _mm_unpacklo_epi32(_mm_loadl_epi64((const __m128i*)p), _mm_setzero_si128());
}
inline void store_words(std::uint32_t* p, Words a) { _mm_storel_epi64((__m128i*)p, _mm_shuffle_epi32(a, 0x88)); }
inline Words splat_words(std::uint32_t a) { return _mm_set1_epi64x(a); }
inline Words multiply_words(Words a, Words b) { return _mm_mul_epu32(a, b); }
inline Words high_words(Words a) { return _mm_srli_epi64(a, 32); }
inline Words xor_words(Words a, Words b, Words c) { return _mm_xor_si128(_mm_xor_si128(a, b), c); }

#elif defined(__aarch64__) || defined(_M_ARM64)

using Vector = float32x4_t;
constexpr std::size_t LANES = 4, REGISTERS = 32;
constexpr const char* REQUIRES[] = {"neon"};
inline Vector load(const float* p) { return vld1q_f32(p); }
inline void store(float* p, Vector a) { vst1q_f32(p, a); }
inline Vector splat(float a) { return vdupq_n_f32(a); }
inline Vector add(Vector a, Vector b) { return vaddq_f32(a, b); }
inline Vector subtract(Vector a, Vector b) { return vsubq_f32(a, b); }
inline Vector multiply(Vector a, Vector b) { return vmulq_f32(a, b); }
inline Vector multiply_add(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
inline std::uint32_t lanes_of(uint32x4_t mask) { return vaddvq_u32(vandq_u32(mask, uint32x4_t{1, 2, 4, 8})); }
inline std::uint32_t at_most(Vector a, Vector b) { return lanes_of(vcleq_f32(a, b)); }
inline std::uint32_t below(Vector a, Vector b) { return lanes_of(vcltq_f32(a, b)); }
using Words = uint64x2_t;
constexpr std::size_t WORDS = 2;
inline Words load_words(const std::uint32_t* p) { return vmovl_u32(vld1_u32(p)); }
inline void store_words(std::uint32_t* p, Words a) { vst1_u32(p, vmovn_u64(a)); }
inline Words splat_words(std::uint32_t a) { return vdupq_n_u64(a); }
inline Words multiply_words(Words a, Words b) { return vmull_u32(vmovn_u64(a), vmovn_u64(b)); }
inline Words high_words(Words a) { return vshrq_n_u64(a, 32); }
inline Words xor_words(Words a, Words b, Words c) { return veorq_u64(veorq_u64(a, b), c); }

#else

using Vector = float;
constexpr std::size_t LANES = 1, REGISTERS = 16;
constexpr std::array<const char*, 0> REQUIRES = {};
inline Vector load(const float* p) { return *p; }
inline void store(float* p, Vector a) { *p = a; }
inline Vector splat(float a) { return a; }
inline Vector add(Vector a, Vector b) { return a + b; }
inline Vector subtract(Vector a, Vector b) { return a - b; }
inline Vector multiply(Vector a, Vector b) { return a * b; }
inline Vector multiply_add(Vector a, Vector b, Vector c) { return a * b + c; }
inline std::uint32_t at_most(Vector a, Vector b) { return a <= b; }
inline std::uint32_t below(Vector a, Vector b) { return a < b; }
using Words = std::uint64_t;
constexpr std::size_t WORDS = 1;
inline Words load_words(const std::uint32_t* p) { return *p; }
inline void store_words(std::uint32_t* p, Words a) { *p = static_cast<std::uint32_t>(a); }
inline Words splat_words(std::uint32_t a) { return a; }
inline Words multiply_words(Words a, Words b) { return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu); }
inline Words high_words(Words a) { return a >> 32; }
inline Words xor_words(Words a, Words b, Words c) { return a ^ b ^ c; }

#endif

// Prefetches a cache line that is read soon.
#if defined(__x86_64__) || defined(_M_X64)
inline void fetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
#elif defined(__GNUC__)
inline void fetch(const void* p) { __builtin_prefetch(p); }
#else
inline void fetch(const void*) {}
#endif

// to[j][i] = from[i][j] for 16 by 16 floats, with row strides `step` and `stride`.
#if defined(__AVX512F__)

inline void transpose16(const float* from, std::size_t step, float* to, std::size_t stride) {
    __m512 a[16], b[16];
    MULTILAYER_UNROLL for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_ps(from + static_cast<std::size_t>(i) * step);
    // Interleave pairs, then fours, within each quarter of a vector. Then exchange quarters between the rows.
    MULTILAYER_UNROLL for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]), b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    MULTILAYER_UNROLL for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44), a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xEE);
        a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44), a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
    }
    MULTILAYER_UNROLL for (int i = 0; i < 4; ++i) {
        b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88), b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xDD);
        b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xDD);
    }
    MULTILAYER_UNROLL for (int i = 0; i < 4; ++i) {
        const __m512 rows[4] = {
            _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88), _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88),
            _mm512_shuffle_f32x4(b[i], b[i + 8], 0xDD), _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xDD)};
        MULTILAYER_UNROLL for (int j = 0; j < 4; ++j) {
            _mm512_storeu_ps(to + static_cast<std::size_t>(4 * j + i) * stride, rows[j]);
        }
    }
}

#elif defined(__AVX2__)

inline void transpose8(const float* from, std::size_t step, float* to, std::size_t stride) {
    __m256 a[8], b[8];
    MULTILAYER_UNROLL for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(from + static_cast<std::size_t>(i) * step);
    MULTILAYER_UNROLL for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]), b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    MULTILAYER_UNROLL for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44), a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xEE);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44), a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
    }
    MULTILAYER_UNROLL for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(to + static_cast<std::size_t>(i) * stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(to + static_cast<std::size_t>(i + 4) * stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}

inline void transpose16(const float* from, std::size_t step, float* to, std::size_t stride) {
    for (std::size_t i = 0; i < 16; i += 8) {
        for (std::size_t j = 0; j < 16; j += 8) transpose8(from + i * step + j, step, to + j * stride + i, stride);
    }
}

#else

inline void transpose16(const float* from, std::size_t step, float* to, std::size_t stride) {
    for (std::size_t i = 0; i < 16; ++i) {
        for (std::size_t j = 0; j < 16; ++j) to[j * stride + i] = from[i * step + j];
    }
}

#endif

// Identification of the processor: cpuid(leaf, subleaf) → eax, ebx, ecx, edx, or zeros past the last leaf, and xgetbv,
// the vector state that the operating system saves. Zeros on other processors.
#if defined(__x86_64__) || defined(_M_X64)

constexpr bool X86 = true, NEON = false;

inline std::array<std::uint32_t, 4> cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
    std::array<std::uint32_t, 4> r{};
#if defined(_MSC_VER)
    int raw[4];
    __cpuid(raw, 0);
    if (leaf > static_cast<std::uint32_t>(raw[0])) return r;
    __cpuidex(raw, static_cast<int>(leaf), static_cast<int>(subleaf));
    for (int i = 0; i < 4; ++i) r[i] = static_cast<std::uint32_t>(raw[i]);
#else
    if (!__get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3])) return {};
#endif
    return r;
}

// Requires OSXSAVE (cpuid leaf 1, ecx bit 27).
inline std::uint64_t xgetbv() {
#if defined(_MSC_VER)
    return _xgetbv(0);
#else
    std::uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return std::uint64_t{high} << 32 | low;
#endif
}

#else

#if defined(__aarch64__) || defined(_M_ARM64)
constexpr bool X86 = false, NEON = true;
#else
constexpr bool X86 = false, NEON = false;
#endif
inline std::array<std::uint32_t, 4> cpuid(std::uint32_t, std::uint32_t) { return {}; }
inline std::uint64_t xgetbv() { return 0; }

#endif

}  // namespace
}  // namespace multilayer::simd
