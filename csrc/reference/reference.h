// The reference core: every operation, loss and optimizer of program.h as plain loops on one thread, in float or
// double.
//
// Tests compare the vectorized core with it, and it runs where the vectorized core cannot. Formulas and their order of
// operations are those of the numpy engine. Each operation is rounded separately.
#pragma once

#include <memory>

#include "program.h"

namespace multilayer {

// Makes a core with T = float or double. Parameters, buffers, slots and averages start at 0. A training step with
// batch_norm needs at least two rows.
template <class T>
std::unique_ptr<Core<T>> make_reference(const Program& program);

}  // namespace multilayer
