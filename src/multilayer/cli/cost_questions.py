"""The questions of `mlp cost`, and the calls that answer them.

| option | question | answered by |
|---|---|---|
| `--memory` | the largest batch within a limit of memory | `costs.inverse` |
| `--flops`, `--parameters` | the widest and the deepest network within a limit | `costs.inverse` |
| `--epochs` | the time for some epochs | `costs.inverse` |
| `--sweep` | the cost over a range of batch sizes or widths | `costs.inverse` |
| `--context` | the cost next to the attention of a transformer | `costs.transformer` |
| `--as` | what another tool reports | `costs.tool_comparison` |
| `--verify` | whether PyTorch runs the same operations | `costs.verification` |
| `--measure` | the measured time of a step | `costs.torch_speed` |

Only `--verify` and `--measure` import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.named_options import whole
from ..costs import Cost, cost, inverse
from ..costs.inverse import Over
from ..costs.transformer import transformer_context
from ..errors import OptionError, needed_by
from ..spec import Spec
from . import cost_answers as answers
from .cost_answers import Answer

if TYPE_CHECKING:
    from ..costs.torch_speed import Measurement


@dataclass(frozen=True, kw_only=True)
class Step:
    """The training step whose cost is computed: every option of `multilayer.cost`."""

    batch: int = 32
    optimizer: str = "adam"
    loss: str = "auto"
    engine: str = "torch"
    dtype: str = "float32"
    rows: int | None = None
    convention: str = "actual"
    l2: bool = False
    clip: bool = False
    average: bool = False

    def cost(self, spec: Spec, batch: int | None = None) -> Cost:
        return cost(spec, **asdict(self if batch is None else replace(self, batch=batch)))


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Questions whose answers replace the table of costs in the terminal. None or False means that it is not asked."""

    memory: int | None
    flops: int | None
    parameters: int | None
    epochs: int | None
    sweep: tuple[Over, tuple[int, ...]] | None
    plot: Path | None
    context: tuple[int, int | None] | None
    tool: str | None
    verify: bool
    measure: bool

    def __post_init__(self) -> None:
        if self.plot is not None and self.sweep is None:
            raise OptionError("--plot draws a sweep: add --sweep batch=1..4096")
        if self.epochs is not None:
            whole("epochs", self.epochs)

    @property
    def any(self) -> bool:
        options = (self.memory, self.flops, self.parameters, self.epochs, self.sweep, self.context, self.tool)
        return self.verify or self.measure or any(item is not None for item in options)

    @property
    def only_sweep(self) -> bool:
        others = (self.memory, self.flops, self.parameters, self.epochs, self.context, self.tool)
        return self.sweep is not None and all(o is None for o in others) and not self.verify and not self.measure


_FIXED_STEP = {
    "--context": (
        "counts a layer of a transformer",
        ("loss", "engine", "convention", "l2", "clip", "average"),
    ),
    "--as": ("shows what a tool reports, in float32", ("loss", "dtype", "engine", "convention")),
    "--verify": ("compares with PyTorch", ("engine", "convention")),
    "--measure": (
        "times a plain step of PyTorch in float32",
        ("dtype", "engine", "convention", "l2", "clip", "average"),
    ),
}
"""Questions about one kind of step: what they do, and the options that contradict it."""


def require_fitting(step: Step, questions: Questions) -> None:
    """Raise an error if an answer would ignore an option, or if a question needs another option."""
    if questions.epochs is not None and step.rows is None:
        raise OptionError("--epochs needs --rows, the number of training rows: add it, for example --rows 60000")
    usual = Step()
    for question in _asked(questions):
        does, options = _FIXED_STEP[question]
        for option in options:
            value = getattr(step, option)
            if value != getattr(usual, option):
                given = f"--{option}" if value is True else f"--{option} {value}"
                raise OptionError(f"{question} {does}: omit {given}")


def fixed_options(questions: Questions) -> set[str]:
    """Return the options that the answers fix. They are not read from a run."""
    return {option for question in _asked(questions) for option in _FIXED_STEP[question][1]}


def _asked(questions: Questions) -> list[str]:
    """Return the questions about one kind of step that are asked."""
    used = {
        "--context": questions.context is not None,
        "--as": questions.tool is not None,
        "--verify": questions.verify,
        "--measure": questions.measure,
    }
    return [question for question in _FIXED_STEP if used[question]]


def answer(spec: Spec, step: Step, questions: Questions) -> Iterator[Answer]:
    """Answer each question, in the order of the options. `--epochs` uses the measured step with `--measure`."""
    measured = _measured(spec, step) if questions.measure else None
    if questions.memory is not None:
        yield _largest_batch(spec, step, questions.memory)
    if questions.flops is not None or questions.parameters is not None:
        yield from _networks(spec, step, questions.flops, questions.parameters)
    if questions.epochs is not None:
        yield _time(spec, step, questions.epochs, measured)
    if questions.sweep is not None:
        yield _sweep(spec, step, *questions.sweep, questions.plot)
    if questions.context is not None:
        length, heads = questions.context
        yield answers.context(
            transformer_context(spec, sequence_length=length, heads=heads, batch=step.batch, dtype=step.dtype)
        )
    if questions.tool is not None:
        from ..costs.tool_comparison import report

        yield answers.tool_report(report(spec, questions.tool, batch=step.batch))
    if questions.verify:
        with needed_by("mlp cost --verify"):
            from ..costs.verification import verify
        yield answers.verification(verify(spec, batch=step.batch, loss=step.loss, dtype=step.dtype))
    if measured is not None:
        yield answers.measurement(measured)


def _largest_batch(spec: Spec, step: Step, limit: int) -> Answer:
    batch, safe = (
        inverse.largest_batch(
            spec,
            limit,
            optimizer=step.optimizer,
            loss=step.loss,
            engine=step.engine,
            dtype=step.dtype,
            convention=step.convention,
            average=step.average,
            clip=step.clip,
            temporary=temporary,
        )
        for temporary in (False, True)
    )
    return answers.largest_batch(limit, batch, safe, step.cost, spec)


def _networks(spec: Spec, step: Step, flops: int | None, parameters: int | None) -> Iterator[Answer]:
    limits, account = (flops, parameters), replace(step, rows=None).cost
    wide = inverse.widest(spec, flops=flops, parameters=parameters, account=account)
    yield answers.widest(spec, wide, limits=limits, account=account)
    deep = inverse.deepest(spec, flops=flops, parameters=parameters, account=account)
    yield answers.deepest(spec, deep, limits=limits, account=account)


def _measured(spec: Spec, step: Step) -> Measurement:
    with needed_by("mlp cost --measure"):
        from ..costs.torch_speed import measure
    return measure(spec, batch=step.batch, loss=step.loss, optimizer=step.optimizer)


def _time(spec: Spec, step: Step, epochs: int, measured: Measurement | None) -> Answer:
    from ..core import machine

    assert step.rows is not None  # checked by `require_fitting`
    here = machine.measure()
    # The textbook convention also counts operations that no step runs.
    account = replace(step, rows=None, convention="actual").cost
    found = inverse.time(
        spec,
        epochs=epochs,
        rows=step.rows,
        batch=step.batch,
        account=account,
        machine=here,
        measured=None if measured is None else measured.measured,
    )
    how = "PyTorch, measured now on" if measured is not None else None
    return answers.time(found, epochs=epochs, rows=step.rows, batch=step.batch, machine=here.processor, how=how)


def _sweep(spec: Spec, step: Step, over: Over, values: tuple[int, ...], plot: Path | None) -> Answer:
    if plot is not None:
        from ..drawing.plots.style import check_path

        check_path(plot)
    found = inverse.sweep(spec, over=over, values=values, batch=step.batch, account=step.cost)
    if plot is not None:
        from ..drawing.plots.style import save

        save(answers.sweep_figure(found), plot, title=f"Cost of {str(spec)[:200]}")
    return answers.sweep_table(found)
