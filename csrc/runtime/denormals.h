// Whether numbers below 1.2e-38 (denormals) are computed with or taken for zero, thread by thread.
#pragma once

#include <cstdint>

namespace multilayer {

// Flushes denormals to zero on this thread while it lives (x86 and AArch64): they would be a hundred times slower and mean
// nothing here.
class FlushDenormals {
public:
    FlushDenormals();
    ~FlushDenormals();

private:
    std::uint64_t before_;
};

// Lets them live again for a moment, for code of others.
class AllowDenormals {
public:
    AllowDenormals();
    ~AllowDenormals();

private:
    std::uint64_t before_;
};

}  // namespace multilayer
