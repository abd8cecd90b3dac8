// Selects the kernels for this processor. They are compiled once per instruction set.
#include <algorithm>
#include <stdexcept>

#include "kernels/kernels.h"
#include "runtime/machine.h"

namespace multilayer {
namespace {

std::vector<const Kernels*> usable() {
    const std::vector<std::string> sets = instruction_sets();
    std::vector<const Kernels*> found;
#define ISA(name) &name::kernels,
    for (const Kernels* k : {MULTILAYER_ISAS}) {
#undef ISA
        const bool runs = std::all_of(k->needs, k->needs + k->n_needs, [&sets](const char* set) {
            return std::find(sets.begin(), sets.end(), set) != sets.end();
        });
        if (runs) found.push_back(k);
    }
    return found;
}

}  // namespace

const Kernels& kernels_named(const std::string& name) {
    const std::vector<const Kernels*> found = usable();
    if (name.empty()) return *found.back();
    for (const Kernels* k : found) {
        if (k->name == name) return *k;
    }
    throw std::invalid_argument("this processor does not support the kernels '" + name + "'");
}

std::vector<std::string> fused_kernels() {
    std::vector<std::string> names;
    for (const Kernels* k : usable()) names.emplace_back(k->name);
    return names;
}

}  // namespace multilayer
