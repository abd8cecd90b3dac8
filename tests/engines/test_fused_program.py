"""Conversion of a spec to the program of the compiled core, and reasons why a network has no kernel."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from multilayer.core import _core
from multilayer.engines import Settings
from multilayer.engines.config import EngineConfig
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.fused_program import program_of, why_not
from multilayer.engines.make import choose_engine
from multilayer.engines.protocol import dropout_layers
from multilayer.errors import SpecError
from multilayer.nn import activations, losses, optimizers
from multilayer.spec import Spec
from support.cases import ALL, LAYER_ROWS, LOSS_ROWS, OPTIMIZER_ROWS, Case
from support.engines import table
from support.strategies import specs

PLAIN = Settings(loss="mse")


def ops_of(text: str) -> list[_core.Op]:
    return program_of(Spec.parse(text), PLAIN).ops


def kinds(text: str) -> str:
    return " ".join(op.kind.name for op in ops_of(text))


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_layers_with_a_kernel_match_the_table(case: Case) -> None:
    assert (why_not(case.spec) is None) == (case.kernel == "yes")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("4-kan(8)-1", "kan1"),
        ("4-8:relu-maxout(3)-1", "maxout1"),
        ("4-[8:apl-4]-1", "residual1.apl1"),
        ("4-8:relu-8:combination(relu+tanh)-1", "combination1"),
        ("4-3:softmax", "softmax1"),
    ],
)
def test_the_first_layer_without_a_kernel_is_named(text: str, name: str) -> None:
    assert why_not(Spec.parse(text)) == f"{name} has no kernel in the fused engine"


@pytest.mark.parametrize(
    ("registry", "options", "what"),
    [
        (losses.LOSSES, {"loss": "hinge"}, "the loss hinge"),
        (optimizers.OPTIMIZERS, {"loss": "mse", "optimizer": "hinge"}, "the optimizer hinge"),
    ],
)
def test_a_loss_or_optimizer_without_a_kernel_is_named(
    monkeypatch: pytest.MonkeyPatch, registry: dict[str, Any], options: dict[str, str], what: str
) -> None:
    """Automatic selection then chooses the torch engine."""
    make = losses.mse if "loss" in what else optimizers.sgd
    monkeypatch.setitem(registry, "hinge", lambda: replace(make(), name="hinge"))
    losses.get.cache_clear()
    spec, how = Spec.parse("4-3:relu-1"), Settings(**options)
    found = why_not(spec, how.loss, how.optimizer)
    assert found == f"{what} has no kernel in the fused engine"
    assert choose_engine(spec, EngineConfig(optimizer=how.optimizer), loss=how.loss) == "torch"
    assert choose_engine(spec, EngineConfig(), loss="mse") == "fused"
    with pytest.raises(SpecError, match=f"{what} has no kernel.*engine=torch"):
        FusedEngine(spec, table(spec, 4), how)
    losses.get.cache_clear()


def test_names_in_the_core_match_those_in_python() -> None:
    assert set(_core.Function.__members__) <= set(activations.catalogue)
    assert set(_core.LossKind.__members__) == {name for name, row in LOSS_ROWS.items() if row.kernel == "yes"}
    assert {*_core.OptimizerKind.__members__, "adamw"} == {
        n for n, row in OPTIMIZER_ROWS.items() if row.kernel == "yes"
    }
    assert {case.name for case in ALL if case.kernel == "yes"} >= set(_core.Function.__members__)
    kinds = {op.kind.name for case in ALL if case.kernel == "yes" for op in program_of(case.spec, PLAIN).ops}
    assert kinds == set(_core.Kind.__members__)
    known = sum(row.kernel == "yes" for row in LAYER_ROWS.values())
    assert known == len(kinds) - 1  # a residual block has two operations


def test_a_residual_block_has_enter_and_leave_operations() -> None:
    assert kinds("3-[[3:tanh]:silu-5:tanh-3]-2") == (
        "enter enter linear activation leave activation linear activation linear leave linear"
    )
    assert [(op.d_in, op.d_out) for op in ops_of("3-4:none-[8:gelu-4]-2")] == [
        (3, 4),
        (4, 4),
        (4, 8),
        (8, 8),
        (8, 4),
        (4, 4),
        (4, 2),
    ]


def test_layers_without_effect_are_omitted() -> None:
    assert kinds("4-4:none:dropout(0)-[identity]-2") == "linear enter leave linear"
    assert kinds("4-4:blend(identity)-2") == "linear activation linear"


def test_dropout_layers_have_the_numbers_that_their_masks_depend_on() -> None:
    text = "4-8:tanh:dropout(0.5)-3:dropout(0)-[3:dropout(0.25)-3]-2:dropout(0.1)"
    found = [(op.part, op.p) for op in ops_of(text) if op.kind.name == "dropout"]
    assert found == [(0, 0.5), (1, 0.25), (2, 0.1)]
    assert len(dropout_layers(Spec.parse(text))) == 3


def test_shared_parameters_have_one_index() -> None:
    spec = Spec.parse("5-4:prelu(per=network)-4:prelu(per=unit)-[4:prelu(per=network)]-3")
    program = program_of(spec, PLAIN)
    names = list(spec.parameters)
    learned = [names[op.learned] for op in program.ops if op.kind.name == "activation"]
    assert learned == ["shared.prelu1.alpha", "prelu2.alpha", "shared.prelu1.alpha"]
    assert [p.size for p in program.parameters] == [p.size for p in spec.parameters.values()]


def test_constants_are_passed_to_the_core() -> None:
    names = ["leaky_relu(0.3)", "elu(0.5)", "sigmoid(2)", "polynomial(3)", "swish(0.5)", "relu"]
    ops = ops_of("-".join(["5", *(f"4:{name}" for name in names), "2"]))
    found = [op.constant for op in ops if op.kind.name == "activation"]
    assert found == [0.3, 0.5, 2.0, 3.0, 0.5, 0.0]
    assert ops_of("4-linear(2, scale=tangent)")[0].factor == 0.5
    assert ops_of("4-swiglu(3)")[0].function.name == "silu"
    norm = ops_of("6-groupnorm(3, eps=0.01)")[0]
    assert (norm.groups, norm.eps, norm.kind.name) == (3, 0.01, "group_norm")


def test_batch_norm_names_its_buffers() -> None:
    spec = Spec.parse("5-4:batchnorm-[batchnorm(momentum=0.3)-4]-1")
    program = program_of(spec, PLAIN)
    names = list(spec.buffers)
    found = [(names[op.mean], names[op.var], op.momentum) for op in program.ops if op.mean != _core.NONE]
    assert found == [
        ("batchnorm1.running_mean", "batchnorm1.running_var", 0.1),
        ("residual1.batchnorm1.running_mean", "residual1.batchnorm1.running_var", 0.3),
    ]
    assert program.buffers == [4, 4, 4, 4]


def test_columns_are_passed_completely() -> None:
    spec = Spec.parse("3+cat(2, 12, 5)-columns(piecewise, n=6, d_numeric=4, d_category=3)-1")
    program = program_of(spec, PLAIN)
    columns = program.ops[0].columns
    names = [*spec.parameters, None]
    assert (columns.numeric.name, columns.n, columns.K, columns.D) == ("piecewise", 6, 6, 4)
    assert [names[c.table] for c in columns.categories] == [None, "columns1.table2", None]
    assert [(c.values, c.width) for c in columns.categories] == [(2, 1), (12, 3), (5, 5)]
    assert names[columns.weight] == "columns1.weight"
    assert names[columns.frequency] is None
    assert list(spec.buffers)[columns.edges] == "columns1.edges"
    assert (program.ops[0].d_in, program.ops[0].d_out, program.numeric) == (3, 21, 3)


@pytest.mark.parametrize(
    ("text", "kind", "constant", "quantiles"),
    [
        ("cross_entropy(label_smoothing=0.1)", "cross_entropy", 0.1, []),
        ("binary_cross_entropy", "binary_cross_entropy", 0.0, []),
        ("huber(0.3)", "huber", 0.3, []),
        ("quantile(0.1, 0.9)", "quantile", 0.0, [0.1, 0.9]),
        ("poisson", "poisson", 0.0, []),
    ],
)
def test_losses_and_their_constants(text: str, kind: str, constant: float, quantiles: list[float]) -> None:
    loss = program_of(Spec.parse("3-2"), Settings(loss=text)).loss
    assert (loss.kind.name, loss.constant, loss.quantiles) == (kind, constant, quantiles)


def test_optimizers_and_settings_are_passed() -> None:
    spec = Spec.parse("3-2")
    plain = program_of(spec, Settings(loss="mse", optimizer="adamw(beta2=0.95)"))
    found = plain.optimizer
    assert (found.kind.name, found.beta1, found.beta2, found.eps) == ("adam", 0.9, 0.95, 1e-8)
    assert (plain.clip_norm, plain.clip_value) == (math.inf, math.inf)
    assert plain.average < 0
    assert [(p.rate_factor, p.decay_factor) for p in plain.parameters] == [(1, 1), (1, 0)]
    full = program_of(
        spec,
        Settings(
            loss="mse",
            optimizer="nesterov(0.5)",
            seed=2**64 - 1,
            l2=0.1,
            clip_norm=2.0,
            clip_value=1.0,
            average=0.0,
            rate_factors={"linear1.bias": 0.1},
            decay_factors={"linear1.bias": 2.0},
        ),
    )
    assert (full.optimizer.kind.name, full.optimizer.momentum) == ("nesterov", 0.5)
    assert (full.seed, full.l2, full.clip_norm, full.clip_value, full.average) == (2**64 - 1, 0.1, 2.0, 1.0, 0.0)
    assert [(p.rate_factor, p.decay_factor) for p in full.parameters] == [(1, 1), (0.1, 2)]


@settings(max_examples=200, deadline=None)
@given(spec=specs())
def test_the_widths_of_consecutive_operations_match(spec: Spec) -> None:
    if why_not(spec) is not None:
        return
    program = program_of(spec, PLAIN)
    d = program.numeric
    open_blocks: list[int] = []
    used: set[int] = set()
    for op in program.ops:
        assert op.d_in == d
        d = op.d_out
        if op.kind.name == "enter":
            open_blocks.append(d)
        elif op.kind.name == "leave":
            assert open_blocks.pop() == d
        c = op.columns
        used |= {op.weight, op.bias, op.learned, op.blend, c.frequency, c.phase, c.weight, c.bias}
        used |= {category.table for category in c.categories}
    assert (d, open_blocks) == (spec.d_out, [])
    assert used - {_core.NONE} == set(range(len(spec.parameters)))
