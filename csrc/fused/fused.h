// The fused core: complete training steps on panels of rows (kernels/kernels.h). Threads synchronize only where they
// share data.
#pragma once

#include <memory>
#include <string>

#include "program.h"

namespace multilayer {

// Makes a core with up to `threads` threads, and with the named kernels or the widest that this processor supports. The
// number of threads does not change the bits. `all_threads` uses all threads even if they do not pay off, for tests.
std::unique_ptr<Core<float>> make_fused(const Program& program, std::size_t threads, const std::string& isa = "",
                                        bool all_threads = false);

}  // namespace multilayer
