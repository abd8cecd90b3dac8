// Properties of this machine: instruction sets and CPU limits (detected), and its speed (measured).
//
// Rates are the best of many short rounds, which is the speed of the hardware if nothing else runs. Measuring takes
// about the given time, plus the time to touch the memory once. Invalid arguments throw std::invalid_argument.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/microbenchmarks.h"

namespace multilayer {

constexpr std::size_t MAX_THREADS = 1024;

// Names of the instruction sets that the processor and the operating system support, oldest first.
std::vector<std::string> instruction_sets();

// The microbenchmarks that this processor supports, narrowest registers first. There is at least one.
std::vector<const Microbenchmark*> microbenchmarks();

// The number of CPUs that the control groups (v1 or v2) allow this process, possibly a fraction; infinity if there is
// no limit. `root` is where proc and sys are mounted: "/" except in tests.
double cpu_quota(const std::string& root);

// The number of threads to use: MULTILAYER_THREADS if set, otherwise the CPUs in the affinity of this process, limited
// by its quota.
std::size_t usable_threads();

// GFLOP/s of float32 matrix products on data in the cache, with the widest microbenchmark. A multiply-add counts as
// two.
double matrix_peak(std::size_t threads, double seconds);

// GB/s (10^9 bytes) for reading a working set of `bytes`. Each thread reads an equal part.
double read_bandwidth(std::size_t bytes, std::size_t threads, double seconds);

// GB/s for y = x + s z. Two reads and one write are counted, as in STREAM, although a write may read its line first.
double triad_bandwidth(std::size_t bytes, std::size_t threads, double seconds);

}  // namespace multilayer
