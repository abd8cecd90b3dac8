"""The table of cases in tests/support/cases.py is complete and agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from onnx.defs import has
from torch.nn import functional

from multilayer.core import _core
from multilayer.engines.fused_program import why_not
from multilayer.export.onnx import activations as onnx_activations
from multilayer.export.onnx import layers as onnx_layers
from multilayer.nn import activations, losses, optimizers
from multilayer.nn.layers import KINDS, Layer
from multilayer.pytorch import TWINS
from multilayer.pytorch import activations as torch_activations
from multilayer.pytorch import losses as torch_losses
from multilayer.pytorch import optimizers as torch_optimizers
from multilayer.spec import Spec
from support.cases import (
    ACTIVATION_ROWS,
    ACTIVATIONS,
    ALL,
    LAYER_ROWS,
    LAYERS,
    LOSS_ROWS,
    OPTIMIZER_ROWS,
    Row,
    kinds_of,
    no,
)

ROWS: dict[str, Row] = {**LAYER_ROWS, **ACTIVATION_ROWS, **LOSS_ROWS, **OPTIMIZER_ROWS}
ENGINE = Path(__file__).parents[2] / "frontend" / "engine"
PLAIN = Spec.parse("2-2:relu-1")


def implemented(column: str) -> bool:
    return column == "yes"


def layers_of(kind: str) -> list[Layer]:
    return [entry.layer for case in LAYERS[kind] for entry in case.spec.entries if entry.layer.kind == kind]


def test_every_layer_activation_loss_and_optimizer_has_a_row() -> None:
    assert set(LAYER_ROWS) == set(KINDS)
    assert set(LAYERS) | {"activation"} == set(KINDS)
    assert set(ACTIVATIONS) == set(ACTIVATION_ROWS) == set(activations.catalogue)
    assert set(LOSS_ROWS) == set(losses.LOSSES)
    assert set(OPTIMIZER_ROWS) == set(optimizers.OPTIMIZERS)
    for name, cases in (LAYERS | ACTIVATIONS).items():
        for case in cases:
            assert name in kinds_of(case.spec.layers), f"the case {case.name!r} does not contain {name}"
    for name, row in LOSS_ROWS.items():
        assert {losses.get(text).name for text in row.by_hand} == {name}
    for name, row in OPTIMIZER_ROWS.items():
        assert {optimizers.get(text).name for text in row.by_hand} == {name}


def test_missing_implementations_have_a_reason() -> None:
    for name, row in (*ROWS.items(), *((case.name, case) for case in ALL)):
        for column in (row.torch, row.kernel, row.page, row.onnx, row.module):
            assert implemented(column) or column.startswith(f"{no}: "), f"{name}: give the reason after 'no: '"


@pytest.mark.parametrize("kind", LAYER_ROWS)
def test_the_columns_of_a_layer(kind: str) -> None:
    row, layer = LAYER_ROWS[kind], KINDS[kind]
    assert implemented(row.torch) == (layer in TWINS)
    assert implemented(row.onnx) == (layer in onnx_layers.WRITERS)
    if kind == "activation":  # each activation has its own row
        return
    assert {implemented(row.kernel)} == {why_not(case.spec) is None for case in LAYERS[kind]}
    assert {implemented(row.page)} == {one.on_page for one in layers_of(kind)}
    assert {implemented(row.module)} == {one.torch_module for one in layers_of(kind)}


@pytest.mark.parametrize("name", ACTIVATION_ROWS)
def test_the_columns_of_an_activation(name: str) -> None:
    row, fn = ACTIVATION_ROWS[name], activations.get(name)
    assert implemented(row.torch) == (name in torch_activations.TWINS or hasattr(functional, name))
    assert implemented(row.kernel) == (name in _core.Function.__members__)
    assert implemented(row.onnx) == (name in onnx_activations.WRITERS or has(name.title().replace("_", "")))
    assert implemented(row.page) == fn.on_page
    assert implemented(row.module) == (fn.torch_module is not None)
    assert fn.torch_module is None or issubclass(getattr(torch.nn, fn.torch_module), torch.nn.Module)


@pytest.mark.parametrize("name", LOSS_ROWS)
def test_the_columns_of_a_loss(name: str) -> None:
    assert implemented(LOSS_ROWS[name].torch) == (name in torch_losses.TWINS)
    assert implemented(LOSS_ROWS[name].kernel) == (why_not(PLAIN, loss=name) is None)


@pytest.mark.parametrize("name", OPTIMIZER_ROWS)
def test_the_columns_of_an_optimizer(name: str) -> None:
    assert implemented(OPTIMIZER_ROWS[name].torch) == (name in torch_optimizers.TWINS)
    assert implemented(OPTIMIZER_ROWS[name].kernel) == (why_not(PLAIN, optimizer=name) is None)


@pytest.mark.parametrize("name", ROWS)
def test_the_explorer_implements_the_rows_that_claim_it(name: str) -> None:
    """The tests in frontend/tests compare the values with those of Python."""
    source = "".join(path.read_text() for path in sorted(ENGINE.glob("*.ts")))
    if implemented(ROWS[name].page):
        assert re.search(rf"\b{name}\b", source)
