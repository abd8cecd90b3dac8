"""What other tools would report for a network, and why it differs from our account. None of them is imported.

Three tools look at one forward pass and go by torch's own modules: they are shown the network that `to_torch` gives, in
evaluation mode. A residual block is a module of the user's own, x + inner(x); all three look through it. The fourth
counts operations, so it is shown the network that `build` gives.

With B rows, I in, O out, n numbers a row, and k learned numbers of a module:

    torchinfo     mult-adds: B·k for every module, so B·(I·O + O) for a Linear, and γ and β of a norm once a row
                  forward/backward pass: 2·4·B·O bytes for a module with parameters, nothing for the others
                  input: the numbers, and the Python object that holds them
    fvcore        MACs, called flops: B·I·O for a Linear, no bias; 5·B·n for LayerNorm and GroupNorm, 2·B·n for
                  BatchNorm; nothing for RMSNorm and activations
    thop          MACs: B·I·O for a Linear, no bias; 4·B·n for LayerNorm and BatchNorm, B·n for PReLU, B·(3n − 1) for
                  Softmax. What it has no rule for, GroupNorm and RMSNorm among them, has no MACs and no parameters
    flopcounter   torch's FlopCounterMode: matrix products alone, 2·B·I·O FLOPs forward, as many for dW, and as many for
                  dA where something below learns

A figure is None where it cannot be known: torch has no such module, or refuses such a batch. All is in float32.
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
class PeerLine:
    """One figure of a tool beside ours; None where it cannot be known."""

    what: str
    figure: int | None
    ours: int | None
    why: str


@dataclass(frozen=True, kw_only=True)
class PeerReport:
    """What a tool would say; `version` is the one that the rules were tested with."""

    tool: str
    version: str
    lines: tuple[PeerLine, ...]


def report(spec: Spec | str, tool: str, *, batch: int = 1) -> PeerReport:
    """What `tool` would report for a network, next to our own account.

    >>> [(line.what, line.figure, line.ours) for line in report("10-11", "fvcore").lines]
    [('FlopCountAnalysis.total()', 110, 308), ('parameter_count()', 121, 121)]
    """
    if tool not in TOOLS:
        raise OptionError(unknown_name("tool", tool, TOOLS))
    version, read = TOOLS[tool]
    network = _Network(Spec.of(spec), batch)
    return PeerReport(tool=tool, version=version, lines=tuple(read(network)))


class _Network:
    """A network as the tools see it: its modules one after another, and our account of it."""

    def __init__(self, spec: Spec, batch: int) -> None:
        self.spec, self.batch = spec, batch
        self.account: Cost = cost(spec, batch=batch, optimizer="sgd")
        self.modules = tuple(entry for entry in spec.entries if not isinstance(entry.layer, Residual))
        self.unknown = _no_module(spec.entries)
        self.refused = _refused(self.modules, batch)

    def own(self, *kinds: type[Layer]) -> int:
        """Learned numbers of the modules of some kinds, or of all; torch's modules share none."""
        wanted = kinds or (Layer,)
        return sum(size(entry.parameters) for entry in self.modules if isinstance(entry.layer, wanted))

    def numbers(self, *kinds: type[Layer]) -> int:
        """Numbers that come out of the modules of some kinds."""
        return self.batch * sum(entry.d_out for entry in self.modules if isinstance(entry.layer, kinds))

    def activations(self, name: str) -> list[Entry]:
        return [e for e in self.modules if isinstance(e.layer, Activation) and e.layer.name == name]

    @property
    def macs(self) -> int:
        return sum(int(row.forward.matmul) for row in self.account.layers) // 2

    def line(
        self, what: str, figure: int, ours: int | None, why: str, *, module: bool = True, runs: bool = True
    ) -> PeerLine:
        """A line whose figure is unknown if the network cannot be made of torch's modules, or cannot be run."""
        reason = (self.unknown if module else "") or (self.refused if runs else "")
        if reason:
            return PeerLine(what=what, figure=None, ours=ours, why=reason)
        if figure == ours:
            why = f"the same by chance: {why}" if why else "the same"
        return PeerLine(what=what, figure=figure, ours=ours, why=why)


# Tools


def _torchinfo(network: _Network) -> Iterable[PeerLine]:
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
                ("the numbers of norms and PReLU count once a row", norms),
            ],
        ),
    )
    yield network.line(
        "input size (bytes)",
        seen,
        None if network.spec.inputs.categories else inputs,
        f"adds {STORAGE_OBJECT} bytes for the Python object that holds the numbers",
    )
    yield network.line(
        "forward/backward pass size (bytes)",
        outputs,
        int(memory.activations),
        "twice the outputs of modules with parameters, whatever is kept; ours is what autograd keeps for the way back: "
        "inputs, results of activations and masks too, each tensor once",
    )
    yield network.line("params size (bytes)", parameters, int(memory.parameters), "")
    yield network.line(
        "estimated total size (bytes)",
        total,
        memory.total,
        "the three sizes above; ours has gradients and running statistics beside the parameters, and what is "
        "really kept (the optimiser's state comes on top of either)",
    )


def _fvcore(network: _Network) -> Iterable[PeerLine]:
    norms = [
        ("LayerNorm and GroupNorm count 5 a number", 5 * network.numbers(LayerNorm, GroupNorm)),
        ("BatchNorm counts 2 a number (5 in training mode)", 2 * network.numbers(BatchNorm)),
    ]
    figure = network.macs + sum(n for _, n in norms)
    why = "MACs under the name of flops: " + _macs(network, charged=norms)
    yield network.line("FlopCountAnalysis.total()", figure, network.account.forward, why)
    yield network.line("parameter_count()", network.own(), network.spec.n_parameters, "", runs=False)


def _thop(network: _Network) -> Iterable[PeerLine]:
    B = network.batch
    charged = [
        ("LayerNorm and BatchNorm count 4 a number", 4 * network.numbers(LayerNorm, BatchNorm)),
        ("PReLU counts 1 a number", B * sum(e.d_out for e in network.activations("prelu"))),
        ("Softmax counts 3n − 1 a row", B * sum(3 * e.d_out - 1 for e in network.activations("softmax"))),
    ]
    figure = network.macs + sum(n for _, n in charged)
    yield network.line("macs", figure, network.account.forward, _macs(network, charged=charged))
    skipped = network.own(GroupNorm, RMSNorm)
    why = f"GroupNorm and RMSNorm have no rule, so their parameters are missed ({skipped:,})" if skipped else ""
    line = network.line("params", network.own() - skipped, network.spec.n_parameters, why)
    if len(network.spec.entries) == 1 and line.figure:
        note = "in a nn.Sequential; 0 for the same module handed over alone"
        line = replace(line, why=f"{line.why}, {note}")
    yield line


def _flopcounter(network: _Network) -> Iterable[PeerLine]:
    account, rows = network.account, network.account.layers
    forward = sum(int(row.forward.matmul) for row in rows)
    backward = sum(int(row.backward.dW) + int(row.backward.dA) for row in rows)
    products = "matrix products alone, at two FLOPs a multiply-add like ours"
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
        why = f"unknown: torch refuses to train {single.name} with a batch of one row: choose a larger batch"
        yield PeerLine(what="forward + backward FLOPs", figure=None, ours=account.step, why=why)
        return
    yield network.line(
        "forward + backward FLOPs",
        forward + backward,
        account.step,
        f"{products}, dA only where something below learns; {_left_out(network, ours='step')}",
        module=False,
        runs=False,
    )


TOOLS: dict[str, tuple[str, Callable[[_Network], Iterable[PeerLine]]]] = {
    "torchinfo": ("1.8.0", _torchinfo),
    "fvcore": ("0.1.5.post20221221", _fvcore),
    "thop": ("0.1.1.post2209072238", _thop),
    "flopcounter": ("2.13.0", _flopcounter),
}
"""Each tool: the version tested (flopcounter: torch's) and what reads a network as it would."""


# In words


def _macs(network: _Network, *, charged: list[tuple[str, int]]) -> str:
    said = [f"a multiply and its add count as one ({network.macs:,}), ours as two FLOPs ({2 * network.macs:,})"]
    said += [f"{phrase} ({amount:,})" for phrase, amount in charged if amount]
    return "; ".join([*said, _left_out(network, ours="forward"), "no backward pass"])


def _left_out(network: _Network, *, ours: str) -> str:
    """What our figure holds beside the matrix products, part by part; with them the parts add up to it."""
    account, rows = network.account, network.account.layers
    forward = [(row.forward.bias, row.forward.activation, row.forward.other) for row in rows]
    backward = [(row.backward.db, row.backward.activation, row.backward.other) for row in rows]
    link = losses.get(account.loss.name).link
    names = ("bias", f"activations and {link}" if link else "activations", "norms, dropout and other")
    sums = [sum(map(int, part)) for part in zip(*(forward + backward if ours == "step" else forward), strict=True)]
    parts = [*zip(names, sums, strict=True), ("the loss", account.loss.forward)]
    return "ours also has " + ", ".join(f"{name} ({amount:,})" for name, amount in parts if amount)


# What cannot be known


def _no_module(entries: Iterable[Entry]) -> str:
    for entry in entries:
        if not (entry.layer.torch_module or isinstance(entry.layer, Residual)):
            return f"unknown: torch has no module of its own for {entry.name}, so it depends on how it is written"
    return ""


def _refused(entries: Iterable[Entry], batch: int) -> str:
    for entry in entries:
        if isinstance(entry.layer, GroupNorm) and batch * entry.d_out == entry.layer.groups:
            return f"unknown: torch refuses {entry.name} with one number in each group: choose a larger batch"
    return ""
