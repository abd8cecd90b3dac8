// The reference core: every operation, loss and optimiser of program.h as plain loops, one thread, in float or double.
//
// The oracle that the vectorised core is measured against, and what runs where that one cannot. Formulas and order of
// operations are those of the numpy engine, with one rounding for each operation as written.
#pragma once

#include <memory>

#include "program.h"

namespace multilayer {

// T is float or double. Parameters, buffers, slots and averages begin at 0. A step over batch_norm needs two rows.
template <class T>
std::unique_ptr<Core<T>> make_reference(const Program& program);

}  // namespace multilayer
