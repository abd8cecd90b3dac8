// Philox in lanes, and the distributions that are computed from its words.
#include "runtime/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

namespace multilayer {
namespace {

// Blocks that are computed at a time. Loops over lanes are inside loops over rounds, so that the compiler can vectorize
// them.
constexpr std::size_t LANES = 32;

// Computes words (LANES, 4): `philox` of the counters (c0[i], c1[i], c2, c3).
void philox_lanes(const std::uint32_t* c0, const std::uint32_t* c1, std::uint32_t c2, std::uint32_t c3,
                  std::uint64_t seed, std::uint32_t* words) noexcept {
    std::uint32_t x0[LANES], x1[LANES], x2[LANES], x3[LANES];
    for (std::size_t i = 0; i < LANES; ++i) x0[i] = c0[i], x1[i] = c1[i], x2[i] = c2, x3[i] = c3;
    RoundKey key(seed);
    for (int round = 0; round < PHILOX_ROUNDS; ++round, key.advance()) {
        for (std::size_t i = 0; i < LANES; ++i) philox_round(x0[i], x1[i], x2[i], x3[i], key.k0, key.k1);
    }
    for (std::size_t i = 0; i < LANES; ++i) {
        words[4 * i] = x0[i], words[4 * i + 1] = x1[i], words[4 * i + 2] = x2[i], words[4 * i + 3] = x3[i];
    }
}

constexpr std::uint32_t last_counter(const Stream& stream) noexcept {
    return static_cast<std::uint32_t>(stream.purpose) << 24 | stream.part;
}

// Calls take(words, count) with the words of the window in row-major order, with at most 4 * LANES words at a time.
// Lanes are (row, block) pairs, so that many narrow rows fill them as well as one wide row does.
template <class Take>
void each_word(const Stream& stream, const Window& window, Take take) {
    if (window.n == 0) return;
    const std::uint64_t end = window.first + window.n;
    const std::uint64_t first_block = window.first / 4;
    const std::uint64_t end_block = (end + 3) / 4;
    const std::size_t head = window.first % 4;                    // words in the first block of a row before the window
    const std::size_t tail = static_cast<std::size_t>(end_block * 4 - end);  // words in its last block after the window

    std::uint32_t c0[LANES], c1[LANES], words[4 * LANES], wanted[4 * LANES];
    std::size_t row = 0;
    std::uint64_t block = first_block;
    while (row < window.rows.size()) {
        std::size_t lanes = 0;
        std::size_t skip[LANES], drop[LANES];
        for (; lanes < LANES && row < window.rows.size(); ++lanes) {
            c0[lanes] = static_cast<std::uint32_t>(block);
            c1[lanes] = static_cast<std::uint32_t>(window.rows[row]);
            skip[lanes] = block == first_block ? head : 0;
            drop[lanes] = block + 1 == end_block ? tail : 0;
            if (++block == end_block) block = first_block, ++row;
        }
        std::fill(c0 + lanes, c0 + LANES, 0), std::fill(c1 + lanes, c1 + LANES, 0);
        philox_lanes(c0, c1, stream.epoch, last_counter(stream), stream.seed, words);

        std::size_t count = 0;
        for (std::size_t i = 0; i < lanes; ++i) {
            const std::size_t length = 4 - skip[i] - drop[i];
            // Four words are always written. Those past `length` are overwritten by the next lane.
            std::uint32_t padded[8] = {};
            std::memcpy(padded, words + 4 * i, sizeof(std::uint32_t) * 4);
            std::memcpy(wanted + count, padded + skip[i], sizeof(std::uint32_t) * 4);
            count += length;
        }
        take(wanted, count);
    }
}

constexpr double from_bits(std::uint32_t word) noexcept { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

// Natural logarithm of a positive normal number, to about 1 ulp.
//
// x = m 2^e with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh s with s = (m - 1) / (m + 1), |s| < 0.172. The error
// of the series to s^21 is below 1e-18. Library logarithms differ between platforms in the last bit, and this function
// does not.
double portable_log(double x) noexcept {
    constexpr double LN2_HIGH = 0x1.62e42fee00000p-1;  // 33 bits, so that e * LN2_HIGH is exact
    constexpr double LN2_LOW = 0x1.a39ef35793c76p-33;
    const auto raw = std::bit_cast<std::uint64_t>(x);
    double e = static_cast<double>(static_cast<std::int64_t>(raw >> 52) - 1023);
    double m = std::bit_cast<double>((raw & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);  // [1, 2)
    if (m > 0x1.6a09e667f3bcdp+0) m *= 0.5, e += 1.0;
    const double s = (m - 1.0) / (m + 1.0);
    const double t = s * s;
    double series = 0.0;
    for (int k = 21; k >= 3; k -= 2) series = (series + 1.0 / k) * t;
    return e * LN2_HIGH + (e * LN2_LOW + (2.0 * s * series + 2.0 * s));
}

template <std::size_t N>
constexpr double polynomial(const double (&c)[N], double x) noexcept {
    double value = c[N - 1];
    for (std::size_t i = N - 1; i-- > 0;) value = value * x + c[i];
    return value;
}

// Wichura: Algorithm AS 241: the percentage points of the normal distribution. Applied Statistics 37 (1988), PPND16:
// rational approximations of the inverse distribution function, with a relative error of about 1e-16. The third
// approximation, for r > 5, is not needed: it is for u < 1e-11, and with 32 bits r <= sqrt(33 log 2) = 4.79.
namespace as241 {

constexpr double A[] = {3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
                        1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                        3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr double B[] = {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
                        2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4,
                        5.2264952788528545610e+3};
constexpr double C[] = {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
                        3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
                        2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double D[] = {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
                        1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
                        1.05075007164441684324e-9};

constexpr double CENTRAL = 0.425;  // for |u - 1/2| up to this value, 85 % of all, no logarithm is needed

// The approximation of the center. q = u - 1/2.
constexpr double central(double q) noexcept {
    const double r = CENTRAL * CENTRAL - q * q;
    return q * polynomial(A, r) / polynomial(B, r);
}

// The approximation of the tails, |q| > CENTRAL. r = sqrt(-log min(u, 1 - u)).
double tail(double q) noexcept {
    const double r = std::sqrt(-portable_log(q < 0.0 ? 0.5 + q : 0.5 - q));
    const double z = polynomial(C, r - 1.6) / polynomial(D, r - 1.6);
    return q < 0.0 ? -z : z;
}

}  // namespace as241

// High 64 bits of a * b. Compilers differ in whether they have a 128-bit type or an intrinsic for this.
constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) noexcept {
    constexpr std::uint64_t LOW = 0xFFFFFFFF;
    const std::uint64_t a0 = a & LOW, a1 = a >> 32, b0 = b & LOW, b1 = b >> 32;
    const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    return a1 * b1 + (middle >> 32) + (((middle & LOW) + a0 * b1) >> 32);
}

}  // namespace

void bits(const Stream& stream, const Window& window, std::uint32_t* out) {
    each_word(stream, window, [&out](const std::uint32_t* words, std::size_t count) {
        out = std::copy_n(words, count, out);
    });
}

void uniform(const Stream& stream, const Window& window, double* out) {
    each_word(stream, window, [&out](const std::uint32_t* words, std::size_t count) {
        out = std::transform(words, words + count, out, from_bits);
    });
}

void normal(const Stream& stream, const Window& window, double* out) {
    each_word(stream, window, [&out](const std::uint32_t* words, std::size_t count) {
        // The approximation of the center has no branches and is vectorized, so it is computed for every value. One in
        // seven values is then replaced.
        double q[4 * LANES];
        for (std::size_t i = 0; i < count; ++i) q[i] = from_bits(words[i]) - 0.5;
        for (std::size_t i = 0; i < count; ++i) out[i] = as241::central(q[i]);
        for (std::size_t i = 0; i < count; ++i) {
            if (q[i] < -as241::CENTRAL || q[i] > as241::CENTRAL) out[i] = as241::tail(q[i]);
        }
        out += count;
    });
}

void keep(const Stream& stream, const Window& window, std::uint8_t* out, double p) {
    // For p just below 1, the threshold rounds to 2^32, which no word reaches. The comparison in 64 bits then drops all
    // values.
    const auto threshold = static_cast<std::uint64_t>(p * 0x1p32 + 0.5);
    each_word(stream, window, [&out, threshold](const std::uint32_t* words, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) out[i] = words[i] >= threshold;
        out += count;
    });
}

void permutation(const Stream& stream, std::span<std::int64_t> out) {
    std::iota(out.begin(), out.end(), std::int64_t{0});
    // Draw i uses words 2i and 2i + 1. Position i is swapped with a position in [0, i], for i = 1, 2, ...
    constexpr std::int64_t row = 0;
    std::size_t i = 0;
    each_word(stream, {.rows = {&row, 1}, .first = 0, .n = 2 * out.size()},
              [&](const std::uint32_t* words, std::size_t count) {
                  for (std::size_t k = 0; k < count; k += 2, ++i) {
                      const std::uint64_t draw = std::uint64_t{words[k + 1]} << 32 | words[k];
                      std::swap(out[i], out[multiply_high(draw, i + 1)]);
                  }
              });
}

std::uint64_t derive(std::uint64_t seed, std::uint32_t member) noexcept {
    const Stream stream{.seed = seed, .purpose = Purpose::derive, .epoch = 0, .part = 0};
    const Block block = philox({0, member, stream.epoch, last_counter(stream)}, seed);
    return std::uint64_t{block[1]} << 32 | block[0];
}

}  // namespace multilayer
