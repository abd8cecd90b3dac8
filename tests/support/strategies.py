"""Random networks for hypothesis: every kind of layer, any order, widths from 1, depth from 0."""

from __future__ import annotations

from hypothesis import strategies as st

from multilayer.nn import activations
from multilayer.nn.layers import (
    GATES,
    GLU,
    KAN,
    Activation,
    BatchNorm,
    Columns,
    Dropout,
    GroupNorm,
    Inputs,
    Layer,
    LayerNorm,
    Linear,
    Maxout,
    Residual,
    RMSNorm,
    Scale,
)
from multilayer.spec import Spec

widths = st.integers(1, 12)
# sqrt is NaN for negative numbers. It has separate tests.
names = st.sampled_from([name for name in activations.catalogue if name not in ("sqrt", "softmax", "polynomial")])
eps = st.sampled_from([1e-5, 1e-3, 0.1])


@st.composite
def plain_activations(draw: st.DrawFn) -> Activation:
    name = draw(names)
    constants: dict[str, object] = {}
    if name in ("leaky_relu", "elu", "prelu"):
        constants["alpha"] = draw(st.sampled_from([0.01, 0.25, 0.5]))
    elif name == "combination":
        constants["parts"] = draw(st.sampled_from(["relu+tanh", "identity+sin+silu"]))
    learned = bool(activations.get(name).learned)
    per = draw(st.sampled_from(["unit", "layer", "network"])) if learned else "layer"
    return Activation(name, constants, per=per, blend=draw(st.booleans()))


simple: st.SearchStrategy[Layer] = st.one_of(
    plain_activations(),
    st.just(Activation("relu")),  # the default activation, which the text form omits
    st.builds(LayerNorm, eps=eps),
    st.builds(RMSNorm, eps=eps),
    st.builds(BatchNorm, eps=eps, momentum=st.sampled_from([0.1, 1.0])),
    st.builds(Dropout, st.sampled_from([0.0, 0.1, 0.5])),
    st.just(Scale()),
    st.just(GroupNorm(1)),
)
mixing: st.SearchStrategy[Layer] = st.one_of(
    st.builds(Linear, widths, bias=st.booleans(), scale=st.sampled_from([None, None, "tangent", 0.5])),
    st.builds(GLU, widths, st.sampled_from(list(GATES)), bias=st.booleans()),
    st.builds(Maxout, widths, st.integers(1, 4), bias=st.booleans()),
    st.builds(
        KAN, widths, basis=st.sampled_from(["spline", "rbf"]), grid=st.integers(2, 5), bound=st.sampled_from([1.0, 2.5])
    ),
)


@st.composite
def residuals(draw: st.DrawFn, d: int) -> Residual:
    inner = draw(st.lists(simple | mixing, max_size=3))
    return Residual((*inner, Linear(d)))


columns = st.one_of(
    st.builds(Columns, categories=st.sampled_from(["auto", "one-hot", "embedding"]), d_category=st.integers(1, 4)),
    st.builds(Columns, st.just("plr"), d_numeric=st.integers(1, 4), n=st.integers(1, 5), sigma=st.just(0.3)),
    st.builds(Columns, st.just("pbld"), d_numeric=st.integers(2, 4), n=st.integers(1, 5)),
    st.builds(Columns, st.just("piecewise"), d_numeric=st.integers(1, 4), n=st.integers(1, 5)),
)


@st.composite
def specs(draw: st.DrawFn, *, max_layers: int = 6) -> Spec:
    """Draw any valid network."""
    categories = tuple(draw(st.lists(st.integers(1, 12), max_size=3)))
    numeric = draw(st.integers(0 if categories else 1, 9))
    inputs = Inputs(numeric, categories)
    layers: list[Layer] = [draw(columns)] if categories or draw(st.integers(0, 4)) == 0 else []
    d = layers[0].width(inputs) if layers else numeric
    for _ in range(draw(st.integers(0, max_layers - 1))):
        layer = draw(simple | mixing | residuals(d))
        layers.append(layer)
        d = layer.width(d)
    layers.append(draw(mixing))
    return Spec(inputs, layers)


@st.composite
def plain_specs(draw: st.DrawFn) -> Spec:
    """Draw a network of linear layers, dropout and activations without parameters, with at most 64 units per layer."""
    learn_nothing = [name for name in activations.catalogue if not activations.get(name).learned]
    functions = names.filter(lambda name: name in learn_nothing and name != "combination")
    layers: list[Layer] = []
    for _ in range(draw(st.integers(0, 3))):
        layers += [Linear(draw(st.integers(1, 64)), bias=draw(st.booleans())), Activation(draw(functions))]
        layers += [Dropout(0.3)] * draw(st.integers(0, 1))
    return Spec(draw(st.integers(1, 64)), [*layers, Linear(draw(st.integers(1, 20)))])


batches = st.sampled_from([1, 2, 3, 8, 17])


def has_batch_norm(layers: tuple[Layer, ...]) -> bool:
    return any(layer.over_batch or has_batch_norm(getattr(layer, "layers", ())) for layer in layers)
