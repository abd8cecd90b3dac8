// Access to the floating-point control word of the processor.
#include "runtime/denormals.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace multilayer {
namespace {

// The floating-point control word of the thread, and its bits that flush denormals. On other processors, these
// functions do nothing.
#if defined(__x86_64__) || defined(_M_X64)
constexpr std::uint64_t FLUSHES = 0x8040;  // FTZ (results) and DAZ (operands)
std::uint64_t control() { return _mm_getcsr(); }
void set_control(std::uint64_t word) { _mm_setcsr(static_cast<unsigned>(word)); }
#elif defined(__aarch64__) && defined(__GNUC__)
constexpr std::uint64_t FLUSHES = 1 << 24;  // FZ (results and operands)
std::uint64_t control() {
    std::uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}
void set_control(std::uint64_t word) { __asm__ volatile("msr fpcr, %0" : : "r"(word)); }
#else
constexpr std::uint64_t FLUSHES = 0;
std::uint64_t control() { return 0; }
void set_control(std::uint64_t) {}
#endif

}  // namespace

FlushDenormals::FlushDenormals() : before_(control()) { set_control(before_ | FLUSHES); }
FlushDenormals::~FlushDenormals() { set_control(before_); }
AllowDenormals::AllowDenormals() : before_(control()) { set_control(before_ & ~FLUSHES); }
AllowDenormals::~AllowDenormals() { set_control(before_); }

}  // namespace multilayer
