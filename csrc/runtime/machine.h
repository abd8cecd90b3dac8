// This machine: what it can do (detected) and how fast it does it (measured).
//
// Rates are the best of many short rounds, which is what the hardware can do when nothing else runs. Measuring takes
// about as long as the caller allows, plus the time to touch the memory once. Requirements that are not met throw
// std::invalid_argument.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/microbenchmarks.h"

namespace multilayer {

constexpr std::size_t MAX_THREADS = 1024;

// Names of the usable instruction sets, those that the operating system supports as well, oldest first.
std::vector<std::string> instruction_sets();

// The microbenchmarks this processor can run, narrowest registers first; never empty.
std::vector<const Microbenchmark*> microbenchmarks();

// CPUs that the control groups (v1 or v2) of this process allow, possibly a fraction; infinity without a limit.
// `root` is where proc and sys are mounted: "/" outside tests.
double cpu_quota(const std::string& root);

// Threads worth starting: MULTILAYER_THREADS if set, else the CPUs of this process's affinity within its quota.
std::size_t usable_threads();

// GFLOP/s of float32 matrix products out of cache, on the widest microbenchmark; a multiply-add is two.
double matrix_peak(std::size_t threads, double seconds);

// GB/s (10^9 bytes) over a working set of `bytes`, split evenly among the threads, each reading its own part.
double read_bandwidth(std::size_t bytes, std::size_t threads, double seconds);

// The same for y = x + s z, counting two reads and one write (as STREAM does; a write may read its line first).
double triad_bandwidth(std::size_t bytes, std::size_t threads, double seconds);

}  // namespace multilayer
