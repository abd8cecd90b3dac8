// The fused core: whole steps on panels of rows (kernels/kernels.h), over threads that meet only where numbers must be
// shared.
#pragma once

#include <memory>
#include <string>

#include "program.h"

namespace multilayer {

// A core on up to `threads` threads with the widest kernels that this processor runs, or those of the name given.
// Bits do not depend on the number of threads: tests have `all_threads` used, not only where a step is worth it.
std::unique_ptr<Core<float>> make_fused(const Program& program, std::size_t threads, const std::string& isa = "",
                                        bool all_threads = false);

}  // namespace multilayer
