// Programs for the tests of the core, as Python would write them: every kind of operation, function, loss and
// optimizer.
#pragma once

#include <string>
#include <vector>

#include "program.h"

namespace multilayer::tests {

struct Network {
    std::string name;
    Program program;
    bool smooth = true;  // no kinks: float and double agree up to rounding for any rows
};

std::vector<Network> networks();

// A network that consists of norms and activations, with hardly any matrix products.
Network streamed();

// Rows with targets for any of the networks: normal numbers, codes with every value, classes or numbers.
template <class T>
struct Rows {
    std::vector<T> x, y, weight;
    std::vector<std::int64_t> codes, classes;
    Table<T> table;
};

template <class T>
Rows<T> rows_for(const Program& program, std::size_t n);

// Initial parameters and buffers.
std::vector<std::vector<float>> parameters_for(const Program& program);
std::vector<std::vector<float>> buffers_for(const Program& program);

}  // namespace multilayer::tests
