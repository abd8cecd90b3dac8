// The random stream: Philox4x32-10, a function of a key and a counter. It has no state.
//
//     (w0, w1, w2, w3) = philox(counter = (c0, c1, c2, c3), key = seed)
//
//     key   64 bits   seed: low word first
//     c0    32 bits   unit >> 2; the word of the unit within the block is unit & 3
//     c1    32 bits   row: its number in the table, not its position in a batch
//     c2    32 bits   epoch
//     c3    32 bits   purpose << 24 | part; part distinguishes layers, parameters, ...
//
// A random number therefore depends only on these values. It does not depend on batch size, threads, processes or other
// draws. Integers are exact on every platform. Doubles are computed from them with + - * / and sqrt in a fixed order and
// without contraction, so they have the same bits on every platform with IEEE arithmetic.
//
// Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace multilayer {

// The purpose of a random number. Values are part of the stream: they never change, and new ones are added at the end.
enum class Purpose : std::uint32_t {
    init = 1,      // initial weights
    shuffle = 2,   // order of rows within an epoch
    dropout = 3,   // dropout masks
    augment = 4,   // noise and mixing of inputs
    split = 5,     // training, validation and test rows
    data = 6,      // generated data sets
    derive = 7,    // seeds derived from seeds
    measure = 8,   // diagnostics: random directions, samples
};

// Every purpose by name. Python reads this list.
inline constexpr std::pair<const char*, Purpose> PURPOSES[] = {
    {"init", Purpose::init},       {"shuffle", Purpose::shuffle}, {"dropout", Purpose::dropout},
    {"augment", Purpose::augment}, {"split", Purpose::split},     {"data", Purpose::data},
    {"derive", Purpose::derive},   {"measure", Purpose::measure},
};

// The part of the key and counter that is the same for a whole call.
struct Stream {
    std::uint64_t seed;
    Purpose purpose;
    std::uint32_t epoch;
    std::uint32_t part;  // < 2^24
};

// The random numbers of a call: rows by units. The result is row-major, (rows.size(), n).
struct Window {
    std::span<const std::int64_t> rows;  // each in [0, 2^32)
    std::uint64_t first;                 // first unit
    std::uint64_t n;                     // units; first + n <= 2^34
};

using Block = std::array<std::uint32_t, 4>;

constexpr int PHILOX_ROUNDS = 10;

// One round of the bijection, in place, with the key of the round.
constexpr void philox_round(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2, std::uint32_t& c3,
                            std::uint32_t k0, std::uint32_t k1) noexcept {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
}

// The key of each round: the two words of the seed, advanced by the golden ratio and by sqrt(3) - 1.
struct RoundKey {
    std::uint32_t k0, k1;
    constexpr explicit RoundKey(std::uint64_t seed) noexcept
        : k0(static_cast<std::uint32_t>(seed)), k1(static_cast<std::uint32_t>(seed >> 32)) {}
    constexpr void advance() noexcept { k0 += 0x9E3779B9, k1 += 0xBB67AE85; }
};

// One block, as plain code. random.cpp computes the same in loops over lanes.
constexpr Block philox(Block c, std::uint64_t seed) noexcept {
    RoundKey key(seed);
    for (int round = 0; round < PHILOX_ROUNDS; ++round, key.advance()) {
        philox_round(c[0], c[1], c[2], c[3], key.k0, key.k1);
    }
    return c;
}

// out (rows, n): 32 random bits each.
void bits(const Stream& stream, const Window& window, std::uint32_t* out);

// out (rows, n): (bits + 1/2) / 2^32, exact, strictly between 0 and 1.
void uniform(const Stream& stream, const Window& window, double* out);

// out (rows, n): standard normal, the inverse distribution function of `uniform`; |z| < 6.34.
void normal(const Stream& stream, const Window& window, double* out);

// out (rows, n): 1 with probability 1 - p, else 0: bits >= round(p * 2^32). p in [0, 1).
void keep(const Stream& stream, const Window& window, std::uint8_t* out, double p);

// out (n): the numbers 0 ... n-1 in random order (Fisher-Yates), from row 0 of the stream. n <= 2^33.
void permutation(const Stream& stream, std::span<std::int64_t> out);

// The seed of a member, for example of an ensemble: two words of the stream at row `member`.
std::uint64_t derive(std::uint64_t seed, std::uint32_t member) noexcept;

}  // namespace multilayer
