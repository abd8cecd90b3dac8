// The nodes of a program, and the memory of each node for a batch.
#include "fused/memory_plan.h"

#include <algorithm>

namespace multilayer {

std::vector<Tensor> lay_out(const Program& program, std::size_t& total) {
    std::vector<Tensor> tensors;
    for (const Parameter& p : program.parameters) tensors.push_back({{1, p.size}, 0, false});
    for (const Op& op : program.ops) {
        if (op.kind != Kind::linear && op.kind != Kind::glu) continue;
        const std::size_t rows = op.kind == Kind::glu ? 2 * op.d_out : op.d_out;
        tensors[static_cast<std::size_t>(op.weight)] = {{rows, op.d_in}, 0, true};
    }
    total = 0;
    for (Tensor& t : tensors) t.offset = total, total += t.shape.size();
    return tensors;
}

namespace {

bool has_parameters(const Op& op) {
    if (op.weight != NONE || op.bias != NONE || op.learned != NONE || op.blend != NONE) return true;
    const Columns& c = op.columns;
    const auto table = [](const Category& category) { return category.table != NONE; };
    return op.kind == Kind::columns &&
           (c.weight != NONE || std::any_of(c.categories.begin(), c.categories.end(), table));
}

}  // namespace

MemoryPlan::MemoryPlan(const Program& program) {
    values.push_back({program.numeric, nullptr, nullptr});
    std::size_t now = 0;
    std::vector<std::size_t> around;  // values that skip the enclosing residual blocks
    bool below = false;               // whether any earlier node has parameters
    std::vector<bool> below_block;

    const auto make = [&](std::size_t d) { return values.push_back({d, nullptr, nullptr}), values.size() - 1; };
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
        const Op& op = program.ops[i];
        Node node;
        node.kind = op.kind, node.op = &op, node.in = now, node.passes = below, node.learns = has_parameters(op);
        switch (op.kind) {
            case Kind::activation:
            case Kind::dropout:
                if (op.kind == Kind::dropout) {
                    if (op.p == 0.0) continue;
                    node.dropout = &op;
                } else if (i + 1 < program.ops.size() && program.ops[i + 1].kind == Kind::dropout) {
                    if (program.ops[i + 1].p > 0.0) node.dropout = &program.ops[i + 1];
                    ++i;
                }
                node.kind = Kind::activation;
                node.out = now;
                node.counted_at = counts;
                if (op.counted.any()) counts += 2 * op.d_out;
                node.with_next = !nodes.empty() && nodes.back().kind == Kind::linear && nodes.back().out == now;
                break;
            case Kind::enter:
                around.push_back(now), below_block.push_back(below);
                node.other = now;
                node.out = make(op.d_out);
                break;
            case Kind::leave:
                node.other = around.back();
                node.out = now;
                node.learns = below_block.back();  // whether the skip connection needs the gradient
                around.pop_back(), below_block.pop_back();
                break;
            default: node.out = make(op.d_out);
        }
        if (op.kind == Kind::linear && !nodes.empty() && nodes.back().kind == Kind::activation &&
            nodes.back().out == now && below) {
            nodes.back().with_later = true;
        }
        if (op.kind == Kind::linear && nodes.empty()) raw = true;
        below = below || (node.learns && op.kind != Kind::leave);
        now = node.out;
        nodes.push_back(std::move(node));
    }
    last = now;
}

std::size_t MemoryPlan::place(std::size_t panels, const Program& program, const Kernels& kernels, float* memory) {
    std::size_t used = 0;
    const auto take = [&](std::size_t n) {
        float* at = memory ? memory + used : nullptr;
        used += padded(n);
        return at;
    };
    const std::size_t rows = panels * PANEL;
    // A gradient is stored in place of its value, because the backward pass uses `rows`, slopes and x̂ instead of the
    // value. Exceptions are inputs of unit-wise operations and embeddings, which are still read, and the inputs of the
    // network, which mostly have no gradient.
    for (Value& v : values) v.g = v.x = take(rows * v.d);
    for (Node& n : nodes) {
        Value& in = values[n.in];
        if (n.passes && is_unitwise(n.kind)) in.g = take(rows * in.d);
    }
    for (Node& n : nodes) {
        const Op& op = *n.op;
        switch (n.kind) {
            case Kind::activation:
                n.slope = take(rows * values[n.out].d);
                if (n.kind == op.kind && op.learned != NONE) n.d_learned = take(rows * values[n.out].d);
                if (n.kind == op.kind && op.blend != NONE) n.d_blend = take(rows * values[n.out].d);
                break;
            case Kind::batch_norm:
            MULTILAYER_ROWWISE(MULTILAYER_CASE)
                n.hat = take(rows * op.d_in);
                n.inverse = take(rows * op.groups);
                if (n.kind != Kind::batch_norm) break;
                n.mean.resize(op.d_in), n.scale.resize(op.d_in), n.variance.resize(op.d_in);
                break;
            case Kind::glu:
                n.z = take(rows * 2 * op.d_out);
                [[fallthrough]];
            case Kind::linear:
                n.rows = take(Strips{rows, op.d_in}.size());
                break;
            case Kind::columns: {
                const Embedding e = embedding_of(program, op);
                n.inside = take(rows * e.F * e.K);
                n.slopes = take(rows * e.F * kernels.slopes_of(e));
                break;
            }
            default: break;
        }
    }
    return used;
}

}  // namespace multilayer
