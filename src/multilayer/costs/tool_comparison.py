"""What other tools report for a network, and why it differs from our cost. None of them is imported.

torchinfo, fvcore and thop look at one forward pass, module by module. They get the network that `to_torch` returns, in
evaluation mode. A residual block is a module x + inner(x); the tools count the modules inside it. The FLOP counter of
PyTorch counts operations. It gets the network that `build` returns.

With B rows, I inputs, O outputs, n elements per row, and k parameters of a module:

| tool | what it counts |
|---|---|
| torchinfo | mult-adds: B·k for every module, so B·(I·O + O) for a Linear, and γ and β of a norm once per row |
| | forward/backward pass: 2·4·B·O bytes for a module with parameters, nothing for others |
| | input: its bytes, and the bytes of the Python object that contains it |
| fvcore | MACs, called flops: B·I·O for a Linear without its bias |
| | 5·B·n for LayerNorm and GroupNorm, 2·B·n for BatchNorm; nothing for RMSNorm and activations |
| thop | MACs: B·I·O for a Linear without its bias |
| | 4·B·n for LayerNorm and BatchNorm, B·n for PReLU, B·(3n − 1) for Softmax |
| | no MACs and no parameters for modules without a rule, such as GroupNorm and RMSNorm |
| flopcounter | FLOPs of matrix products only: 2·B·I·O forward, for dW, and for dA if a layer below has parameters |

None means an unknown number: torch has no such module, or does not accept such a batch. Everything is in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..errors import OptionError, unknown_name
from ..nn import losses
from ..nn.layers import Activation, BatchNorm, GroupNorm, Layer, LayerNorm, Linear, Residual, RMSNorm
from ..nn.layers.base import size
from ..spec import Entry, Spec
from .count import DTYPES, Cost, cost

STORAGE_OBJECT = 64
"""Bytes that sys.getsizeof adds for the object around a tensor's storage, in CPython 3.11."""

_FLOAT = DTYPES["float32"]


@dataclass(frozen=True, kw_only=True)
class ToolLine:
    """A number of a tool, our number, and why they differ. None means unknown."""

    what: str
    figure: int | None
    ours: int | None
    why: str


@dataclass(frozen=True, kw_only=True)
class ToolReport:
    """The numbers of a tool. `version` is the version that was tested."""

    tool: str
    version: str
    lines: tuple[ToolLine, ...]


def report(spec: Spec | str, tool: str, *, batch: int = 1) -> ToolReport:
    """Return what a tool reports for a network, and the same numbers from our cost.

    >>> [(line.what, line.figure, line.ours) for line in report("10-11", "fvcore").lines]
    [('FlopCountAnalysis.total()', 110, 308), ('parameter_count()', 121, 121)]
    """
    if tool not in TOOLS:
        raise OptionError(unknown_name("tool", tool, TOOLS))
    version, read = TOOLS[tool]
    network = _Network(Spec.of(spec), batch)
    return ToolReport(tool=tool, version=version, lines=tuple(read(network)))


class _Network:
    """A network as the tools see it: its modules in order. `account` is our cost."""

    def __init__(self, spec: Spec, batch: int) -> None:
        self.spec, self.batch = spec, batch
        self.account: Cost = cost(spec, batch=batch, optimizer="sgd")
        self.modules = tuple(entry for entry in spec.entries if not isinstance(entry.layer, Residual))
        self.unknown = _no_module(spec.entries)
        self.refused = _refused(self.modules, batch)

    def own(self, *kinds: type[Layer]) -> int:
        """Return the number of parameters in modules of the given kinds, by default of all kinds."""
        selected = kinds or (Layer,)
        return sum(size(entry.parameters) for entry in self.modules if isinstance(entry.layer, selected))

    def numbers(self, *kinds: type[Layer]) -> int:
        """Return the number of outputs of the modules of the given kinds."""
        return self.batch * sum(entry.d_out for entry in self.modules if isinstance(entry.layer, kinds))

    def activations(self, name: str) -> list[Entry]:
        return [e for e in self.modules if isinstance(e.layer, Activation) and e.layer.name == name]

    @property
    def macs(self) -> int:
        return sum(int(row.forward.matmul) for row in self.account.layers) // 2

    def line(
        self, what: str, figure: int, ours: int | None, why: str, *, module: bool = True, runs: bool = True
    ) -> ToolLine:
        """Return a line, without a figure if torch has no such modules or cannot run them."""
        reason = (self.unknown if module else "") or (self.refused if runs else "")
        if reason:
            return ToolLine(what=what, figure=None, ours=ours, why=reason)
        if figure == ours:
            why = f"the same by chance: {why}" if why else "the same"
        return ToolLine(what=what, figure=figure, ours=ours, why=why)


# Tools


def _torchinfo(network: _Network) -> Iterable[ToolLine]:
    B, memory = network.batch, network.account.memory
    norms = B * (network.own() - network.own(Linear))
    bias = B * sum(e.d_out for e in network.modules if isinstance(e.layer, Linear) and e.layer.bias)
    inputs = _FLOAT * B * network.spec.inputs.numeric
    seen = inputs + STORAGE_OBJECT
    outputs = 2 * _FLOAT * B * sum(entry.d_out for entry in network.modules if size(entry.parameters))
    parameters = _FLOAT * network.own()
    total = seen + outputs + parameters
    yield network.line("total params", network.own(), network.spec.n_parameters, "")
    yield network.line("trainable params", network.own(), network.spec.n_parameters, "")
    yield network.line(
        "total mult-adds",
        B * network.own(),
        network.account.forward,
        _macs(
            network,
            charged=[
                ("a bias counts as a multiply-add", bias),
                ("parameters of norms and PReLU count once per row", norms),
            ],
        ),
    )
    yield network.line(
        "input size (bytes)",
        seen,
        None if network.spec.inputs.categories else inputs,
        f"adds {STORAGE_OBJECT} bytes for the Python object around the data",
    )
    yield network.line(
        "forward/backward pass size (bytes)",
        outputs,
        int(memory.activations),
        "twice the outputs of modules with parameters; ours is what autograd keeps for the backward pass, each tensor "
        "once, including inputs, results of activations and masks",
    )
    yield network.line("params size (bytes)", parameters, int(memory.parameters), "")
    yield network.line(
        "estimated total size (bytes)",
        total,
        memory.total,
        "the three sizes above; ours also has gradients and running statistics, and what autograd keeps; the state of "
        "the optimizer is in neither",
    )


def _fvcore(network: _Network) -> Iterable[ToolLine]:
    norms = [
        ("LayerNorm and GroupNorm count 5 per element", 5 * network.numbers(LayerNorm, GroupNorm)),
        ("BatchNorm counts 2 per element (5 in training mode)", 2 * network.numbers(BatchNorm)),
    ]
    figure = network.macs + sum(n for _, n in norms)
    why = "MACs, called flops: " + _macs(network, charged=norms)
    yield network.line("FlopCountAnalysis.total()", figure, network.account.forward, why)
    yield network.line("parameter_count()", network.own(), network.spec.n_parameters, "", runs=False)


def _thop(network: _Network) -> Iterable[ToolLine]:
    B = network.batch
    charged = [
        ("LayerNorm and BatchNorm count 4 per element", 4 * network.numbers(LayerNorm, BatchNorm)),
        ("PReLU counts 1 per element", B * sum(e.d_out for e in network.activations("prelu"))),
        ("Softmax counts 3n − 1 per row", B * sum(3 * e.d_out - 1 for e in network.activations("softmax"))),
    ]
    figure = network.macs + sum(n for _, n in charged)
    yield network.line("macs", figure, network.account.forward, _macs(network, charged=charged))
    skipped = network.own(GroupNorm, RMSNorm)
    why = f"GroupNorm and RMSNorm have no rule, so their parameters are not counted ({skipped:,})" if skipped else ""
    line = network.line("params", network.own() - skipped, network.spec.n_parameters, why)
    if len(network.spec.entries) == 1 and line.figure:
        note = "in an nn.Sequential; 0 for the same module alone"
        line = replace(line, why=f"{line.why}, {note}")
    yield line


def _flopcounter(network: _Network) -> Iterable[ToolLine]:
    account, rows = network.account, network.account.layers
    forward = sum(int(row.forward.matmul) for row in rows)
    backward = sum(int(row.backward.dW) + int(row.backward.dA) for row in rows)
    products = "matrix products only, with two FLOPs per multiply-add like ours"
    yield network.line(
        "forward FLOPs",
        forward,
        account.forward,
        f"{products}; {_left_out(network, ours='forward')}",
        module=False,
        runs=False,
    )
    single = next((e for e in network.modules if e.layer.over_batch), None)
    if single and network.batch == 1:
        why = f"unknown: torch cannot train {single.name} with a batch of one row: choose a larger batch"
        yield ToolLine(what="forward + backward FLOPs", figure=None, ours=account.step, why=why)
        return
    yield network.line(
        "forward + backward FLOPs",
        forward + backward,
        account.step,
        f"{products}, dA only if a layer below has parameters; {_left_out(network, ours='step')}",
        module=False,
        runs=False,
    )


TOOLS: dict[str, tuple[str, Callable[[_Network], Iterable[ToolLine]]]] = {
    "torchinfo": ("1.8.0", _torchinfo),
    "fvcore": ("0.1.5.post20221221", _fvcore),
    "thop": ("0.1.1.post2209072238", _thop),
    "flopcounter": ("2.13.0", _flopcounter),
}
"""The tested version of each tool (flopcounter: of torch), and the function that returns its numbers."""


# Reasons


def _macs(network: _Network, *, charged: list[tuple[str, int]]) -> str:
    parts = [f"a multiply and its add count as one ({network.macs:,}), ours as two FLOPs ({2 * network.macs:,})"]
    parts += [f"{phrase} ({amount:,})" for phrase, amount in charged if amount]
    return "; ".join([*parts, _left_out(network, ours="forward"), "no backward pass"])


def _left_out(network: _Network, *, ours: str) -> str:
    """Return all parts of our number except the matrix products."""
    account, rows = network.account, network.account.layers
    forward = [(row.forward.bias, row.forward.activation, row.forward.other) for row in rows]
    backward = [(row.backward.db, row.backward.activation, row.backward.other) for row in rows]
    link = losses.get(account.loss.name).link
    names = ("bias", f"activations and {link}" if link else "activations", "norms, dropout and other")
    sums = [sum(map(int, part)) for part in zip(*(forward + backward if ours == "step" else forward), strict=True)]
    parts = [*zip(names, sums, strict=True), ("the loss", account.loss.forward)]
    return "ours also has " + ", ".join(f"{name} ({amount:,})" for name, amount in parts if amount)


# Unknown numbers


def _no_module(entries: Iterable[Entry]) -> str:
    for entry in entries:
        if not (entry.layer.torch_module or isinstance(entry.layer, Residual)):
            return f"unknown: torch has no module for {entry.name}, so the number depends on its implementation"
    return ""


def _refused(entries: Iterable[Entry], batch: int) -> str:
    for entry in entries:
        if isinstance(entry.layer, GroupNorm) and batch * entry.d_out == entry.layer.groups:
            return f"unknown: torch cannot run {entry.name} with one element per group: choose a larger batch"
    return ""
