// Controls, per thread, whether denormal numbers (below 1.2e-38) are kept or flushed to zero.
#pragma once

#include <cstdint>

namespace multilayer {

// Flushes denormals to zero on this thread during its lifetime (x86 and AArch64). Computing with denormals would be a
// hundred times slower, and they have no effect on results here.
class FlushDenormals {
public:
    FlushDenormals();
    ~FlushDenormals();

private:
    std::uint64_t before_;
};

// Enables denormals during its lifetime, for code of other libraries.
class AllowDenormals {
public:
    AllowDenormals();
    ~AllowDenormals();

private:
    std::uint64_t before_;
};

}  // namespace multilayer
