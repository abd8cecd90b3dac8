// Python binding of prediction, used only by engines/fused_engine.py. Category codes are validated here for every row.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "bind/common.h"
#include "predict/predict.h"
#include "program.h"

namespace multilayer {
namespace {

using namespace nb::literals;

class BoundPrediction {
public:
    BoundPrediction(const Program& program, const std::vector<Array<float, 1>>& parameters,
                    const std::vector<Array<float, 1>>& buffers, std::size_t threads, const std::string& kernels,
                    bool all_threads)
    : numeric_(program.numeric), d_out_(program.d_out) {
        require(parameters.size() == program.parameters.size() && buffers.size() == program.buffers.size(),
                "there must be one array for each parameter and each buffer");
        std::vector<const float*> values, kept;
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            require(parameters[i].size() == program.parameters[i].size, "a tensor must have the size given by the program");
            values.push_back(parameters[i].data());
        }
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            require(buffers[i].size() == program.buffers[i], "a tensor must have the size given by the program");
            kept.push_back(buffers[i].data());
        }
        if (!program.ops.empty()) {
            for (const Category& c : program.ops[0].columns.categories) values_.push_back(c.values);
        }
        core_ = make_prediction_core(program, values, kept, threads, kernels, all_threads);
    }

    Matrix<float> outputs(const Strided<float>& x, const std::optional<Array<std::int64_t, 2>>& codes) const {
        const std::size_t rows = x.shape(0), C = values_.size();
        require(x.shape(1) == numeric_, "x must have one column for each numeric input of the network");
        require(x.shape(1) < 2 || x.stride(1) == 1, "the values of a row of x must be contiguous");
        require(rows < 2 || x.stride(0) >= 0, "x must not have a negative row stride");
        require((codes ? codes->shape(1) : 0) == C,
                "codes must have one column for each categorical input of the network");
        require(!codes || codes->shape(0) == rows, "codes must have as many rows as x");
        if (codes) check(codes->data(), rows);
        Table<float> table;
        table.rows = rows, table.x = x.data(), table.codes = codes ? codes->data() : nullptr;
        table.stride = rows < 2 ? numeric_ : static_cast<std::size_t>(x.stride(0));
        auto out = std::make_unique_for_overwrite<float[]>(rows * d_out_);
        unlocked([&](const StopRequested& stop) { core_->outputs(table, 0, rows, out.get(), stop); });
        return owned<Matrix<float>>(std::move(out), {rows, d_out_});
    }

    std::size_t bytes() const { return core_->bytes(); }

private:
    void check(const std::int64_t* codes, std::size_t rows) const {
        const std::size_t C = values_.size();
        for (std::size_t i = 0; i < rows * C; ++i) {
            if (codes[i] >= 0 && codes[i] <= values_[i % C]) continue;
            throw std::out_of_range("codes of category column " + std::to_string(i % C) + " must be from 0 to " +
                                    std::to_string(values_[i % C]) + ", got " + std::to_string(codes[i]) + " in row " +
                                    std::to_string(i / C));
        }
    }

    std::size_t numeric_, d_out_;
    std::vector<std::int64_t> values_;  // known values of each category column
    std::unique_ptr<PredictionCore> core_;
};

}  // namespace

void bind_predict(nb::module_& m) {
    nb::class_<BoundPrediction>(m, "PredictionCore")
        .def(nb::init<const Program&, const std::vector<Array<float, 1>>&, const std::vector<Array<float, 1>>&, std::size_t,
                      const std::string&, bool>(),
             "program"_a, nb::arg("parameters").noconvert(), nb::arg("buffers").noconvert(), "threads"_a,
             "kernels"_a = "", nb::kw_only(), "all_threads"_a = false)
        .def("outputs", &BoundPrediction::outputs, nb::arg("x").noconvert(),
             nb::arg("codes").noconvert().none() = nb::none())
        .def_prop_ro("bytes", &BoundPrediction::bytes);
}

}  // namespace multilayer
