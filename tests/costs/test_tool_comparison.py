"""The figures that `tool_comparison` states for each tool equal those of the tool itself on a real module.

Each tool gets a new module, because thop adds buffers to modules.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from multilayer.costs.tool_comparison import STORAGE_OBJECT, TOOLS, report
from multilayer.costs.verification import example
from multilayer.errors import OptionError, SpecError
from multilayer.nn import losses
from multilayer.nn.layers import Activation, BatchNorm, Dropout, GroupNorm, Layer, LayerNorm, Linear, Residual, RMSNorm
from multilayer.pytorch.losses import forward as loss_forward
from multilayer.pytorch.model import build, to_sequential
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.strategies import specs

with warnings.catch_warnings():
    # On import, fvcore compiles a loss with torch.jit.script, and thop reads versions with distutils.
    warnings.filterwarnings("ignore", message="`torch.jit.script", category=DeprecationWarning)
    warnings.filterwarnings("ignore", message=".*distutils", category=DeprecationWarning)
    import thop
    import torchinfo
    from fvcore.nn import FlopCountAnalysis, parameter_count

# thop calls its deprecated function when it counts a PReLU.
pytestmark = pytest.mark.filterwarnings("ignore:This API is being deprecated:UserWarning:thop.vision.calc_func")


class Add(nn.Module):
    """A residual block as a user would write it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def module_of(layers: tuple[Layer, ...], d: int) -> nn.Sequential:
    """Convert with `to_sequential`, with residual blocks as `Add`. The module is in training mode, as a new one is."""
    found: list[nn.Module] = []
    for layer in layers:
        inner = getattr(layer, "layers", ())
        found.append(Add(module_of(inner, d)) if inner else to_sequential(build(Spec(d, [layer])))[0])
        d = layer.width(d)
    return nn.Sequential(*found)


def fresh(spec: Spec) -> nn.Sequential:
    residual = any(isinstance(entry.layer, Residual) for entry in spec.entries)
    return module_of(spec.layers, spec.inputs.numeric) if residual else to_sequential(build(spec))


def by_torchinfo(spec: Spec, batch: int) -> dict[str, int]:
    found = torchinfo.summary(fresh(spec), input_size=(batch, spec.inputs.numeric), verbose=0)
    # The size of the Python object depends on the Python version. The expected value is for the tested version.
    inputs = found.total_input - sys.getsizeof(torch.empty(0).untyped_storage()) + STORAGE_OBJECT
    return {
        "total params": found.total_params,
        "trainable params": found.trainable_params,
        "total mult-adds": found.total_mult_adds,
        "input size (bytes)": inputs,
        "forward/backward pass size (bytes)": found.total_output_bytes,
        "params size (bytes)": found.total_param_bytes,
        "estimated total size (bytes)": inputs + found.total_output_bytes + found.total_param_bytes,
    }


def by_fvcore(spec: Spec, batch: int) -> dict[str, int]:
    analysis = FlopCountAnalysis(fresh(spec).eval(), torch.randn(batch, spec.inputs.numeric))
    analysis.unsupported_ops_warnings(False)
    return {"FlopCountAnalysis.total()": analysis.total(), "parameter_count()": parameter_count(fresh(spec))[""]}


def by_thop(spec: Spec, batch: int) -> dict[str, int]:
    macs, parameters = thop.profile(fresh(spec), inputs=(torch.randn(batch, spec.inputs.numeric),), verbose=False)
    assert float(macs).is_integer()
    assert float(parameters).is_integer()
    return {"macs": int(macs), "params": int(parameters)}


def by_flopcounter(spec: Spec, batch: int) -> dict[str, int]:
    """Count the network of `build`. The forward pass is in evaluation mode, so that batch norm accepts one row."""
    loss = losses.auto(spec.d_out)
    inputs, target = example(spec, loss, batch, dtype=torch.float32)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        build(spec).eval()(*inputs)
    found = {"forward FLOPs": counter.get_total_flops()}
    if batch > 1 or not any(isinstance(entry.layer, BatchNorm) for entry in spec.entries):
        with FlopCounterMode(display=False) as counter:
            value = loss_forward(loss, build(spec).train()(*inputs), target)
            if value.requires_grad:
                value.backward()
        found["forward + backward FLOPs"] = counter.get_total_flops()
    return found


RUN = {"torchinfo": by_torchinfo, "fvcore": by_fvcore, "thop": by_thop, "flopcounter": by_flopcounter}


def check(spec: Spec, tool: str, batch: int) -> None:
    stated = {line.what: line.figure for line in report(spec, tool, batch=batch).lines if line.figure is not None}
    assert stated == RUN[tool](spec, batch)
    assert all(type(figure) is int for figure in stated.values())


NETWORKS = (
    "784-256-128-10",
    "10-11",
    "10-linear(11, bias=no)",
    "1-1",
    "1-1:tanh-1:tanh-1",
    "20-linear(16, bias=no)-linear(8, bias=no):gelu-3",
    "20-16:layernorm:relu:dropout(0.1)-16:layernorm:gelu-3",
    "20-16:batchnorm:relu-16:batchnorm:silu:dropout(0.5)-1",
    "20-batchnorm-dropout(0)-4",
    "20-16:rmsnorm:mish-16:groupnorm(4):elu-3",
    "20-16:prelu-8:prelu(per=unit)-3",
    "20-8:rmsnorm:prelu-8:prelu-3",
    "1-1:prelu-1:prelu(per=unit)",
    "20-16:leaky_relu(0.3)-8:hard_tanh-8:softplus-3:softmax",
    "20-linear(16, scale=tangent):selu-linear(3, scale=0.5):sigmoid",
    "20-16:none-[layernorm-64:gelu:dropout(0.1)-16]*3-10",
    "3-[[3:tanh]:silu-5:prelu-3]*2-2",
    "5-tanh",
    "5-layernorm",
    "5-identity-softmax",
)


@pytest.mark.parametrize("batch", [1, 7, 32])
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("text", NETWORKS)
def test_every_figure_equals_that_of_the_tool(text: str, tool: str, batch: int) -> None:
    check(Spec.parse(text), tool, batch)


names = "identity sigmoid tanh hard_tanh relu leaky_relu elu selu softplus gelu gelu_tanh silu mish softmax"
layers_of_torch: st.SearchStrategy[Layer] = st.one_of(
    st.builds(Linear, st.integers(1, 40), bias=st.booleans(), scale=st.sampled_from([None, "tangent"])),
    st.builds(Activation, st.sampled_from(names.split())),
    st.builds(Activation, st.just("prelu"), per=st.sampled_from(["unit", "layer"])),
    st.sampled_from([LayerNorm(), RMSNorm(), BatchNorm(), GroupNorm(1), Dropout(0.0), Dropout(0.3)]),
)


@st.composite
def torch_networks(draw: st.DrawFn) -> Spec:
    layers = draw(st.lists(layers_of_torch, min_size=1, max_size=8))
    return Spec(draw(st.integers(1, 40)), layers)


@pytest.mark.parametrize("tool", TOOLS)
@given(spec=torch_networks(), batch=st.integers(2, 40))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_networks_of_torch_modules(tool: str, spec: Spec, batch: int) -> None:
    check(spec, tool, batch)
    assert all(line.figure is not None for line in report(spec, tool, batch=batch).lines)


@given(spec=specs(), batch=st.integers(2, 9))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_flopcounter_supports_any_network(spec: Spec, batch: int) -> None:
    check(spec, "flopcounter", batch)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_figures_are_unknown_only_for_layers_without_a_torch_module(case: Case) -> None:
    spec = case.spec
    try:
        module_of(spec.layers, spec.inputs.numeric)
        known = not spec.inputs.categories
    except SpecError:
        known = False
    for tool in ("torchinfo", "fvcore", "thop"):
        lines = report(spec, tool, batch=4).lines
        assert [line.figure is not None for line in lines] == [known] * len(lines)
        assert all(known or line.why.startswith("unknown: torch has no module for ") for line in lines)
    check(spec, "flopcounter", 4)


def test_a_batch_that_torch_refuses_is_unknown() -> None:
    one_each = Spec.parse("4-4:groupnorm(4)-2")
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        fresh(one_each).eval()(torch.randn(1, 4))
    check(one_each, "flopcounter", 1)  # the module of this package accepts it
    for tool in ("torchinfo", "fvcore", "thop"):
        for line in report(one_each, tool).lines:
            if line.what == "parameter_count()":  # this tool does not run the module
                assert line.figure == parameter_count(fresh(one_each))[""]
            else:
                assert line.figure is None
                assert "torch cannot run groupnorm1 with one element per group" in line.why
        check(one_each, tool, 2)
    forward, step = report("4-4:batchnorm-2", "flopcounter").lines
    assert forward.figure == 48
    assert step.figure is None
    assert "torch cannot train batchnorm1 with a batch of one row" in step.why


def test_totals_equal_those_that_torchinfo_prints() -> None:
    figures = {line.what: line.figure for line in report("784-256-128-10", "torchinfo", batch=32).lines}
    printed = str(torchinfo.summary(fresh(Spec.parse("784-256-128-10")), input_size=(32, 784), verbose=0))
    total = figures["estimated total size (bytes)"]
    assert total is not None
    assert f"Estimated Total Size (MB): {total / 1e6:0.2f}" in printed


def test_fvcore_counts_more_for_batch_norm_in_training() -> None:
    analysis = FlopCountAnalysis(nn.Sequential(nn.BatchNorm1d(3)).train(), torch.randn(4, 3))
    assert analysis.total() == 5 * 4 * 3
    assert (
        "BatchNorm counts 2 per element (5 in training mode) (24)"
        in report("3-batchnorm", "fvcore", batch=4).lines[0].why
    )


def test_thop_reports_no_parameters_for_a_single_module() -> None:
    assert thop.profile(nn.Linear(10, 11), inputs=(torch.randn(1, 10),), verbose=False) == (110.0, 0)
    assert report("10-11", "thop").lines[1].why.endswith("0 for the same module alone")


@pytest.mark.parametrize(
    "text", ["784-256-128-10", "6-4:layernorm:gelu-4:batchnorm:prelu-3:softmax", "4-3-1", "9-[9:tanh]-1"]
)
def test_the_reasons_explain_the_whole_difference(text: str) -> None:
    """The figure of a tool plus the amounts in the reason equals the figure of this package."""

    def amounts(part: str) -> list[int]:
        return [int(amount.replace(",", "")) for amount in re.findall(r"\(([\d,]+)\)", part)]

    for tool in ("torchinfo", "fvcore", "thop"):
        line = next(line for line in report(text, tool, batch=5).lines if line.why.endswith("no backward pass"))
        counted, also = line.why.split("ours also has ")
        macs, doubled, *charged = amounts(counted)
        assert line.figure == macs + sum(charged)
        assert line.ours == doubled + sum(amounts(also)) == 2 * macs + sum(amounts(also))
    for line in report(text, "flopcounter", batch=5).lines:
        assert line.figure is not None
        assert line.ours == line.figure + sum(amounts(line.why))


def test_known_answers() -> None:
    """Linear(10, 11) with one row: 121, 110, 110 and 220."""
    first = {tool: report("10-11", tool).lines for tool in TOOLS}
    assert first["torchinfo"][2].figure == 121
    assert first["fvcore"][0].figure == 110
    assert first["thop"][0].figure == 110
    assert first["flopcounter"][0].figure == 220
    line = report("784-256-128-10", "torchinfo", batch=32).lines[2]
    assert (line.what, line.figure, line.ours) == ("total mult-adds", 7_524_672, 15_051_264)
    assert line.why == (
        "a multiply and its add count as one (7,512,064), ours as two FLOPs (15,024,128); "
        "a bias counts as a multiply-add (12,608); "
        "ours also has bias (12,608), activations and softmax (13,888), the loss (640); no backward pass"
    )
    forward, step = report("784-256-10", "flopcounter", batch=1).lines
    assert (forward.figure, step.figure) == (406_528, 406_528 + 401_408 + 10_240)


def test_equal_figures_are_explained() -> None:
    assert report("784-10", "fvcore").lines[1].why == "the same"
    chance = report("10-11", "torchinfo").lines[4]
    assert chance.figure == chance.ours
    assert chance.why.startswith("the same by chance: ")
    shared = report("4-4:prelu(per=network)-4:prelu(per=network)", "thop").lines[1]
    assert shared.figure is None
    assert shared.why.startswith("unknown: torch has no module for prelu1")


@pytest.mark.parametrize("tool", TOOLS)
def test_the_installed_version_is_the_tested_one(tool: str) -> None:
    installed = importlib.metadata.version("torch" if tool == "flopcounter" else tool)
    assert report("4-2", tool).version == Version(installed).public


def test_invalid_options_are_refused() -> None:
    with pytest.raises(
        OptionError, match=r"unknown tool 'torchinf': did you mean 'torchinfo'\? valid: flopcounter, fvcore"
    ):
        report("4-2", "torchinf")
    with pytest.raises(OptionError, match="batch must be a whole number of at least 1, got 0"):
        report("4-2", "thop", batch=0)


def test_a_report_imports_none_of_the_tools() -> None:
    code = """
import sys
from multilayer.costs.tool_comparison import TOOLS, report
for tool in TOOLS:
    report("4-3-2", tool, batch=2)
print(sorted({"torch", "torchinfo", "fvcore", "thop"} & set(sys.modules)))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
