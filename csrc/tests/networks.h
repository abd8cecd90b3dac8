// Programs for the core's tests, written as Python would: every kind of operation, function, loss and optimiser.
#pragma once

#include <string>
#include <vector>

#include "program.h"

namespace multilayer::tests {

struct Network {
    std::string name;
    Program program;
    bool smooth = true;  // no kinks: float and double agree to rounding wherever the rows lie
};

std::vector<Network> networks();

// One whose steps are norms and activations, and hardly any products.
Network streamed();

// Rows with targets for any of them: normal numbers, codes with every value, classes or numbers.
template <class T>
struct Rows {
    std::vector<T> x, y, weight;
    std::vector<std::int64_t> codes, classes;
    Table<T> table;
};

template <class T>
Rows<T> rows_for(const Program& program, std::size_t n);

// Parameters and buffers to start from.
std::vector<std::vector<float>> parameters_for(const Program& program);
std::vector<std::vector<float>> buffers_for(const Program& program);

}  // namespace multilayer::tests
