"""Non-finite values and invalid input of the fused engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from multilayer.core import _core
from multilayer.data.batches import Data
from multilayer.engines import Order, Settings
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.fused_program import program_of
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.engines.torch_engine import TorchEngine
from multilayer.errors import BatchError, DataError, OptionError, SpecError, StateError
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.engines import CORES, every_core, fused_engine, run, table

# Non-finite values


@every_core
@pytest.mark.parametrize("where", ["x", "y", "weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_non_finite_value_is_reported_before_the_update(value: float, where: str, cut: int, core: str) -> None:
    spec = Spec.parse("3-4:batchnorm:tanh-1")
    data = replace(table(spec, 8), weight=np.ones(8))
    untouched = replace(data, **{where: getattr(data, where).copy()})
    getattr(data, where)[5] = value
    how = Settings(loss="mse", average=0.9)
    clean, made = (FusedEngine(spec, d, how, **CORES[core]) for d in (untouched, data))
    run(clean, Order(epoch=0, rows=np.arange(4), batch=2))
    for start in range(0, 8, 2 * cut):
        chunk = run(made, Order(epoch=0, rows=np.arange(start, min(start + 2 * cut, 8)), batch=2))
        if chunk.bad is not None:
            assert start // 2 + chunk.bad == 2
            assert len(chunk.loss) == len(chunk.gradient_norm) == chunk.bad + 1
            break
    else:
        pytest.fail("the bad step was not flagged")
    if core != "kernels":  # these loops update during the backward pass, so the training loop restores the state
        assert made.state().equals(clean.state())


@every_core
@pytest.mark.parametrize("case", [c for c in ALL if c.kernel == "yes"], ids=lambda case: case.name)
def test_nan_in_any_parameter_is_detected_in_every_layer(case: Case, core: str) -> None:
    spec = case.spec
    if not spec.inputs.numeric or "step" in case.text or "hard_tanh" in case.text:
        return  # no parameter to set to NaN, or its gradient is 0 everywhere, so PyTorch propagates no NaN either
    data = table(spec, 6)
    data.x[4, 0] = np.nan
    made = FusedEngine(spec, data, Settings(loss="mse"), **CORES[core])
    assert run(made, Order(epoch=0, rows=np.arange(6), batch=3)).bad == 1


@every_core
def test_gradients_whose_squares_overflow_count_as_non_finite(core: str) -> None:
    """Only the kernels report it: they add squares in float, which overflows for norms above 1.8e19."""
    data = Data(x=np.full((2, 1), 1e10), y=np.full((2, 1), -1e14))
    how = Settings(loss="mse", optimizer="sgd")
    made = FusedEngine(Spec.parse("1-1"), data, how, init="zeros", **CORES[core])
    chunk = run(made, Order(epoch=0, rows=np.arange(2), batch=2), rate=1e-30)
    if core == "kernels":
        assert chunk.bad == 0
        return
    assert chunk.bad is None
    assert chunk.gradient_norm[0] == pytest.approx(2e24, rel=1e-6)


# Invalid input


@pytest.mark.parametrize("text", ["2-kan(3)-1", "2-maxout(3)-1", "2-4:apl-1", "2-3:softmax"])
def test_a_network_without_kernels_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(SpecError, match=r"has no kernel in the fused engine: train 2-.* with engine=torch"):
        fused_engine(text)


@pytest.mark.parametrize("text", ["2+cat(2, 3)-1", "2+cat(2, 12)-columns(d_category=3)-1"])
@pytest.mark.parametrize(("column", "code"), [(0, -1), (0, 3), (1, -1), (1, 13), (1, 0.5), (0, np.nan)])
def test_codes_outside_their_values_are_refused(text: str, column: int, code: float) -> None:
    spec = Spec.parse(text)
    n = spec.inputs.categories[column]
    codes = np.ones((4, 2), dtype=np.int64 if isinstance(code, int) else np.float64)
    codes[2, column] = code
    data = Data(x=np.zeros((4, 2)), codes=codes, y=np.zeros((4, 1)))  # type: ignore[arg-type]
    message = rf"category column {column} must hold .* from 0 \(missing or unknown\) to {n}, got {code} in row 2"
    with pytest.raises(DataError, match=message):
        FusedEngine(spec, data, Settings(loss="mse"))


@pytest.mark.parametrize("label", [-1.0, 3.0, 0.5, np.nan])
def test_class_numbers_without_an_output_are_refused(label: float) -> None:
    data = Data(x=np.zeros((3, 2)), y=np.array([0, 2, label]))
    with pytest.raises(DataError, match=f"y must hold class numbers from 0 to 2, got {label} in row 2"):
        FusedEngine(Spec.parse("2-3"), data, Settings(loss="cross_entropy"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((8, 3))}, r"x must have the shape \(8, 2\) .* got shape \(8, 3\)"),
        ({"y": np.zeros(8)}, r"y must have the shape \(8, 1\)"),
        ({"codes": None}, r"codes must have the shape \(8, 1\) .* got none"),
        ({"weight": np.ones((8, 1))}, r"weight must have the shape \(8,\)"),
    ],
)
def test_wrong_shapes_are_refused(change: dict[str, Any], message: str) -> None:
    spec = Spec.parse("2+cat(3)-columns-1")
    with pytest.raises(OptionError, match=message):
        FusedEngine(spec, replace(table(spec, 8), **change), Settings(loss="mse"))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"dtype": "bfloat16"}, "computes in float32 or float64, got 'bfloat16': use engine=torch"),
        ({"dtype": np.float16}, "computes in float32 or float64, got 'float16'"),
        ({"core": "referense"}, "did you mean 'reference'"),
        ({"threads": 0}, "threads must be a whole number of at least 1, got 0"),
        ({"rate_factors": {"linear9.bias": 1.0}}, "unknown parameter in rate_factors 'linear9.bias'"),
    ],
)
def test_invalid_options_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fused_engine(**how)


def test_a_state_of_another_network_is_refused() -> None:
    other = fused_engine("4-5:batchnorm:prelu:dropout(0.3)-3").state()
    with pytest.raises(StateError, match=r"parameters/linear1.weight must have the shape \(6, 4\), got \(5, 4\)"):
        fused_engine().load(other)


def test_batch_norm_refuses_one_row_before_any_step() -> None:
    made = fused_engine(rows=13)
    before = made.state()
    with pytest.raises(BatchError, match="at least 2 rows in a training batch, got 1"):
        run(made, Order(epoch=0, rows=np.arange(13), batch=4))
    with pytest.raises(BatchError, match="drop the last batch, or use layernorm"):
        made.gradients(np.arange(1), epoch=0)
    assert made.state().equals(before)


def test_a_dropout_rate_of_1_or_more_is_refused() -> None:
    with pytest.raises(OptionError, match=r"dropout times its factor must be at least 0 and below 1, got 1\.2"):
        run(fused_engine(), Order(epoch=0, rows=np.arange(4), batch=2), dropout=4.0)
    with pytest.raises(OptionError, match="dropout times its factor"):
        fused_engine().gradients(np.arange(4), epoch=0, dropout=-0.5)


@pytest.mark.parametrize("make", [FusedEngine, NumpyEngine, TorchEngine])
@pytest.mark.parametrize("name", ["rate", "decay", "dropout"])
@pytest.mark.parametrize("steps", [4, 6])
def test_schedules_of_the_wrong_length_are_refused(make: Any, name: str, steps: int) -> None:
    spec = Spec.parse("4-3")
    made = make(spec, table(spec, 30), Settings(loss="mse"))
    how = {"rate": np.ones(5), "decay": np.zeros(5), "dropout": np.ones(5), name: np.ones(steps)}
    with pytest.raises(OptionError, match=f"{name} must have one number for each of 5 steps, got {steps}"):
        made.run(Order(epoch=0, rows=np.arange(30), batch=7), **how)
    assert made.state().step == 0


def test_rows_outside_the_table_are_refused() -> None:
    made = fused_engine()
    for rows in (np.array([0, 30]), np.array([-1, 1])):
        for call in (made.outputs, lambda rows: made.gradients(rows, epoch=0)):
            with pytest.raises(IndexError, match=r"row (30|-1) is not in a table of 30"):
                call(rows)
        with pytest.raises(IndexError, match="is not in a table of 30"):
            run(made, Order(epoch=0, rows=rows, batch=2))


def test_the_core_checks_the_size_of_every_array() -> None:
    """Test the checks of the binding, which the engine itself never triggers."""
    program = program_of(Spec.parse("2-3"), Settings(loss="mse", optimizer="sgd"))
    core = _core.reference_double(program)
    x, y = np.zeros((4, 2)), np.zeros((4, 3))
    whole = _core.TableDouble(x, None, None, y, None)
    rows, one = np.arange(4), np.ones(1)
    with pytest.raises(ValueError, match="y must have as many rows as x"):
        _core.TableDouble(x, None, None, y[:3], None)
    with pytest.raises(ValueError, match="the values of a row of x must be contiguous"):
        _core.TableDouble(np.asfortranarray(x), None, None, y, None)
    for other, message in (
        (_core.TableDouble(np.zeros((4, 1)), None, None, y, None), "x must have one column for each numeric input"),
        (
            _core.TableDouble(x, np.zeros((4, 1), np.int64), None, y, None),
            "one column for each categorical input",
        ),
        (_core.TableDouble(x, None, np.zeros(4, np.int64), None, None), "cross_entropy needs either classes or y"),
        (_core.TableDouble(x, None, None, y[:, :2].copy(), None), "y must have one column for each target"),
    ):
        with pytest.raises(ValueError, match=message):
            core.run(other, rows, rows, 4, 0, one, one, one)
    with pytest.raises(ValueError, match="must have one value per step"):
        core.run(whole, rows, rows, 2, 0, one, one, one)
    with pytest.raises(ValueError, match="the program has no tensors of this group"):
        core.read(_core.Group["slot0"])
    with pytest.raises(IndexError):
        core.write(_core.Group["parameters"], 2, np.zeros(5))
    with pytest.raises(ValueError, match="a tensor must have the size given by the program"):
        core.write(_core.Group["parameters"], 0, np.zeros(5))
    with pytest.raises(ValueError, match="one array for each gradient and each buffer"):
        core.apply([np.zeros(6)], [], 0.1, 0.0)
    with pytest.raises(TypeError):
        _core.TableDouble(x.astype(np.float32), None, None, y, None)
