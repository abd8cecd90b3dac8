// The kernels (see kernels.h). This file is compiled once per instruction set. The copies share no functions except
// small inlined ones of shared headers: otherwise the linker could give a caller the copy of a wider instruction set.
#include "kernels/kernels.h"

#include <iterator>

#include "runtime/random.h"
#include "runtime/simd.h"

#define MULTILAYER_VECTOR  // the vector code of formulas/
#define UNROLL MULTILAYER_UNROLL
#define MULTILAYER_TEXT_(x) #x
#define MULTILAYER_TEXT(x) MULTILAYER_TEXT_(x)

namespace multilayer::MULTILAYER_ISA {

#include "kernels/maths.h"
#include "kernels/vector16.h"
#include "formulas/activations.h"
#include "formulas/losses.h"
#include "formulas/optimizers.h"
#include "formulas/unitwise.h"
#include "kernels/optimizers.h"
#include "kernels/matrix_products.h"
#include "kernels/pointwise.h"
#include "kernels/unitwise.h"
#include "kernels/norms.h"
#include "kernels/losses.h"
#include "kernels/columns.h"
#include "kernels/prediction.h"

constinit const Kernels kernels{
    .name = MULTILAYER_TEXT(MULTILAYER_ISA),
    .needs = std::data(simd::REQUIRES),
    .n_needs = std::size(simd::REQUIRES),
    .forward = forward,
    .backward = backward,
    .weight_gradient = weight_gradient,
    .join_gradient = join_gradient,
    .update = update,
    .square_sums = square_sums,
    .to_rows = to_rows,
    .to_panels = to_panels,
    .pointwise = pointwise,
    .pointwise_backward = pointwise_backward,
    .gate = gate,
    .gate_backward = gate_backward,
    .unitwise = unitwise,
    .unitwise_backward = unitwise_backward,
    .add = add,
    .copy = copy,
    .norm = norm,
    .norm_backward = norm_backward,
    .batch_statistics = batch_statistics,
    .batch_backward = batch_backward,
    .loss = loss,
    .sum_rows = sum_rows,
    .slopes_of = slopes_of,
    .embed = embed,
    .embed_gradient = embed_gradient,
    .forward_rows = forward_rows,
    .pointwise_rows = pointwise_rows,
    .gate_rows = gate_rows,
    .unitwise_rows = unitwise_rows,
    .embed_row = embed_row,
};

}  // namespace multilayer::MULTILAYER_ISA
