"""The generated parts of the reference: whole pages in `PAGES`, and parts of pages by name in `PARTS`.

Everything is read from the package: names and docstrings, the options of the commands, the catalogues of layers,
activations, losses, optimizers and schedules, the events, the exceptions, and the docstrings of the packages.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import detector_pages

ROOT = Path(__file__).parents[2]
NO_BREAK = "\u2011"
"""A hyphen at which a line is not broken."""
PACKAGE = ROOT / "src" / "multilayer"

# Python

Group = tuple[str, str, Sequence[str]]
GROUPS: dict[str, Group] = {
    "networks": (
        "Networks",
        "Describe a network. Functions return a `Spec`; [Network grammar](../network-grammar.md) has the text form.",
        ("Spec", "mlp", "linear", "neuron", "residual_mlp", "feed_forward_block", "collapse", "hyperplane"),
    ),
    "layers": (
        "Layers",
        "The layers of a `Spec`. [Layers](../layers.md) has their text form, options and parameters in one table.",
        (
            *("Inputs", "Linear", "Activation", "Dropout", "Residual", "Scale", "Columns"),
            *("BatchNorm", "LayerNorm", "RMSNorm", "GroupNorm", "GLU", "Maxout", "KAN"),
        ),
    ),
    "estimators": (
        "Estimators",
        "Estimators with the interface of scikit-learn: [Tables and estimators](../../explanation/tables.md).",
        ("MLPClassifier", "MLPRegressor"),
    ),
    "training": (
        "Training",
        "Train a network and get a `Run`. [Training options](../training-options.md) lists the options.",
        (
            *("fit", "resume", "training.run.Run"),
            *("find_learning_rate", "training.learning_rate_finder.LearningRateSuggestion"),
        ),
    ),
    "models": (
        "Trained models",
        "Load a model, predict and evaluate. Neither needs PyTorch.",
        ("load", "models.trained_model.TrainedModel", "models.importance.Importance"),
    ),
    "diagnostics": (
        "Diagnostics",
        "Find what went wrong in training, and train again with a remedy. "
        "[Finding out what went wrong](../../how-to/find-out-what-went-wrong.md) has examples.",
        (
            *("check", "diagnostics.check.Diagnosis", "diagnostics.findings.Finding", "diagnostics.findings.Place"),
            *("diagnostics.findings.Remedy", "diagnostics.measurements.Measurements"),
            *("training.retraining.retrain", "training.retraining.Retrained"),
        ),
    ),
    "lab": (
        "Experiments",
        "Measure what textbooks claim. `ml.lab.NAME(...)` runs the experiment NAME. "
        "[The experiments](../../explanation/experiments/index.md) lists them.",
        ("lab.run", "lab.Result", "lab.rows.Rows", "lab.criteria.Judgement"),
    ),
    "cost": (
        "Cost",
        "Count what a training step takes. [Cost](../../explanation/cost.md) has the formulas and conventions.",
        ("cost", "costs.count.Cost", "costs.memory.Memory", "costs.transformer.transformer_context"),
    ),
    "inspection": (
        "Inspection",
        "Inspect a network: pictures, initial values, traces and the explorer.",
        ("draw", "drawing.picture.Picture", "initialise", "variance", "trace", "interpretation.trace.Trace", "explore"),
    ),
    "export": (
        "PyTorch and ONNX",
        "Build a PyTorch module, convert one, and export trained models.",
        ("build", "from_torch", "to_torch", "to_onnx"),
    ),
    "errors": ("Errors", "The exceptions of the package.", ("MultilayerError", "SpecError")),
}
"""Pages of the Python reference: title, introduction, and the names on them."""


def public_names() -> dict[str, str]:
    """Return the module of each public name, without importing the modules."""
    import multilayer

    return {name: multilayer._LAZY[name] for name in multilayer.__all__}


def other_names() -> list[str]:
    """Return public names that are on no page of `GROUPS`. They appear on a separate page."""
    listed = {name for _, _, names in GROUPS.values() for name in names}
    return [name for name in public_names() if name not in listed]


def _python_page(title: str, introduction: str, names: Iterable[str]) -> str:
    where = public_names()
    lines = [f"# {title}", "", introduction, ""]
    for name in names:
        path = f"multilayer.{where[name]}.{name}" if name in where else f"multilayer.{name}"
        shown = f"ml.{name}" if name in where else name.rpartition(".")[2]
        members = "true" if name.startswith("MLP") else "false"
        lines += [f"::: {path}", "    options:", f"      heading: {shown}", f"      toc_label: {shown}"]
        lines += [f"      inherited_members: {members}"]
        lines += ["      members: false", ""] if where.get(name) == "nn.layers" else [""]
    return "\n".join(lines)


def _error_page() -> str:
    from multilayer import errors

    names = [name for name, value in vars(errors).items() if _is_error(value)]
    title, introduction, _ = GROUPS["errors"]
    intro = f"{introduction} All of them are subclasses of `MultilayerError`, which is a `ValueError`."
    return _python_page(title, intro, [name if name in public_names() else f"errors.{name}" for name in names])


def _is_error(value: Any) -> bool:
    from multilayer.errors import MultilayerError

    return isinstance(value, type) and issubclass(value, MultilayerError)


# Commands


def _commands() -> dict[str, Any]:
    import typer

    from multilayer.cli.main import COMMANDS, app

    group = typer.main.get_command(app)
    return {name: group.get_command(None, name) for name in COMMANDS}  # pyright: ignore


def _command_index() -> str:
    rows = [[f"[`mlp {name}`]({name}.md)", _sentence(command.help)] for name, command in _commands().items()]
    return "\n".join(
        [
            "# Commands",
            "",
            "`mlp COMMAND --help` prints the same text in the terminal. `mlp --version` prints the version and the "
            "instruction sets in use. [Exit codes](../exit-codes.md) explains the exit codes.",
            "",
            *table(["command", "what it does"], rows),
        ]
    )


def _command_page(name: str) -> str:
    command = _commands()[name]
    arguments = [one for one in command.params if type(one).__name__.endswith("Argument")]
    options = [one for one in command.params if one not in arguments and not one.hidden and one.name != "help"]
    usage = " ".join(["mlp", name, "[OPTIONS]", *(_metavar(one) for one in arguments)])
    lines = [f"# mlp {name}", "", _prose(command.help), "", "```text", usage, "```", ""]
    if arguments:
        rows = [[f"`{_metavar(one)}`", _prose(one.help), _default(one)] for one in arguments]
        lines += ["## Arguments", "", *table(["argument", "meaning", "default"], rows), ""]
    panels: dict[str, list[Any]] = {}
    for option in options:
        panels.setdefault(option.rich_help_panel or "Options", []).append(option)
    for panel, members in panels.items():
        rows = [[_spelling(one), _prose(one.help), _default(one)] for one in members]
        lines += [f"## {panel}", "", *table(["option", "meaning", "default"], rows), ""]
    return "\n".join([*lines, *_epilog(command.epilog or "")])


def _epilog(text: str) -> Iterator[str]:
    """Yield the examples of a help text as a block, and its other paragraphs as text."""
    heading, _, rest = _plain(text).partition("\n")
    if not heading.startswith("Examples"):
        yield _plain(text)
        return
    paragraphs = [part.strip() for part in rest.split("\n\n") if part.strip()]
    commands = [part for part in paragraphs if part.startswith("mlp ")]
    yield from ("## Examples", "", "```console", *commands, "```", "")
    yield from (f"{part}\n" for part in paragraphs if part not in commands)


def _metavar(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required or name.startswith("[") else f"[{name}]"


def _spelling(option: Any) -> str:
    names = ", ".join(f"`{one}`" for one in [*option.opts, *option.secondary_opts])
    shown = "" if option.is_flag else f" `{option.metavar or _type(option)}`"
    return names + shown


def _type(option: Any) -> str:
    annotation = getattr(option.type_descriptor, "annotation", str)
    return {int: "N", float: "NUMBER"}.get(annotation, "TEXT")


def _default(param: Any) -> str:
    if isinstance(param.show_default, str):
        return _prose(param.show_default)
    value = param.default
    if value is None or value is False or value == () or value == [] or callable(value):
        return ""
    return f"`{value}`" if not isinstance(value, bool) else "on"


# Tables of the catalogues


def grammar() -> str:
    """The grammar, from the docstring of the module that reads it."""
    from multilayer.spec import grammar as module

    first = (module.__doc__ or "").split("\n\n")[1]
    return "\n".join(["```text", inspect.cleandoc(first), "```"])


def layer_kinds() -> str:
    from multilayer.nn.layers import GATES, KINDS

    rows: list[list[str]] = []
    for kind, layer in KINDS.items():
        names = [f"`{gate}`" for gate in GATES] if kind == "glu" else [f"`{kind}`"]
        options = [_field(one) for one in dataclasses.fields(layer) if one.init]
        rows.append([", ".join(names), f"[`ml.{layer.__name__}`](python/layers.md)", _first(layer), ", ".join(options)])
    return "\n".join(table(["name", "class", "computes", "options and defaults"], rows))


def _field(field: Any) -> str:
    if field.default is dataclasses.MISSING:
        return f"`{field.name}`"
    return f"`{field.name}={field.default!r}`"


def activations() -> str:
    from multilayer.nn import activations as module
    from multilayer.nn.activations import properties

    rows: list[list[str]] = []
    for name in module.catalogue:
        function = module.get(name)
        low, high = properties.extent(function)
        gain = properties.gain(function)
        rows.append(
            [
                f"`{name}`",
                f"`{function.formula}`",
                ", ".join(f"`{key}={value}`" for key, value in function.constants),
                f"{function.flops}, {function.flops_backward}",
                f"{low:.4g} to {high:.4g}",
                f"{properties.max_slope(function):.4g}",
                "" if gain is None else f"{gain:.4g}",
                "yes" if function.vanishes else "",
            ]
        )
    heads = ["name", "formula", "constants", "FLOPs forward, backward", "range", "largest slope", "gain", "vanishes"]
    return "\n".join(table(heads, rows))


def losses() -> str:
    from multilayer.nn.losses import LOSSES

    rows: list[list[str]] = []
    for name, make in LOSSES.items():
        loss = make()
        rows.append([f"`{_call(name, make)}`", f"`{loss.formula}`", loss.link or "", loss.targets, f"{loss.flops}"])
    return "\n".join(table(["name and constants", "loss of a row", "link", "targets", "FLOPs per output"], rows))


def optimizers() -> str:
    from multilayer.nn.optimizers import OPTIMIZERS

    rows: list[list[str]] = []
    for name, make in OPTIMIZERS.items():
        one = make()
        decay = "yes" if one.decays else ""
        slots = ", ".join(one.slots) or "none"
        rows.append([f"`{_call(name, make)}`", f"`p ← {one.formula}`", slots, f"{one.flops}", decay])
    heads = ["name and constants", "update", "stored per parameter", "FLOPs per parameter", "weight decay by default"]
    return "\n".join(table(heads, rows))


def schedules() -> str:
    from multilayer.nn.schedules import SCHEDULES

    rows = [[f"`{_call(name, make)}`", f"`{make().formula}`"] for name, make in SCHEDULES.items()]
    return "\n".join(table(["name and constants", "factor"], rows))


def _call(name: str, make: Callable[..., Any]) -> str:
    parameters = inspect.signature(make).parameters.values()
    shown = [
        one.name if one.default is inspect.Parameter.empty else f"{one.name}={one.default:g}" for one in parameters
    ]
    return f"{name}({', '.join(shown)})" if shown else name


def implementations() -> str:
    """The layers and activations that an implementation lacks, from the table that the tests use."""
    import sys

    sys.path.insert(0, str(ROOT / "tests"))
    from support.cases import ACTIVATION_ROWS, LAYER_ROWS

    columns = ("kernel", "page", "onnx", "module")
    rows: list[list[str]] = []
    for name, row in (LAYER_ROWS | ACTIVATION_ROWS).items():
        cells = [getattr(row, column).partition(":")[0] for column in columns]
        if "no" in cells:
            rows.append([f"`{name}`", *cells])
    heads = ["layer or activation", "fused engine", "explorer page", "ONNX", "module of `torch.nn`"]
    return "\n".join(table(heads, rows))


def bundled() -> str:
    from multilayer.data import bundled as module

    rows: list[list[str]] = []
    for name in module.names():
        table_ = module.load(name)
        classes = ", ".join(table_.targets)
        rows.append([f"`{name}`", f"{len(table_):,}", f"{len(table_.names) - len(table_.targets)}", classes])
    return "\n".join(table(["name", "rows", "columns", "target"], rows))


# Events and errors


def events() -> str:
    from multilayer.runs import events as module

    comments = _field_comments(Path(module.__file__))
    base = {one.name for one in dataclasses.fields(module.Event)}
    lines: list[str] = []
    for name, kind in module.EVENTS.items():
        own = inspect.getdoc(kind) or ""
        text = "" if own == inspect.getdoc(module.Event) else own
        hints = typing.get_type_hints(kind)
        rows = [
            [f"`{one.name}`", f"`{_hint(hints[one.name])}`", comments.get((kind.__name__, one.name), "")]
            for one in dataclasses.fields(kind)
            if one.name not in base
        ]
        lines += [f"### {name}", "", text, "", *table(["field", "type", "meaning"], rows), ""]
    return "\n".join(lines)


def _hint(value: Any) -> str:
    if isinstance(value, type) and not typing.get_args(value):
        return value.__name__
    return re.sub(r"typing\.|NoneType", lambda found: "None" if "None" in found[0] else "", str(value))


def _field_comments(path: Path) -> dict[tuple[str, str], str]:
    """Return the text below each field of the classes in a module."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            for field, below in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(below, ast.Expr)
                    and isinstance(field.target, ast.Name)
                ):
                    value = below.value
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        found[node.name, field.target.id] = " ".join(value.value.split())
    return found


def errors() -> str:
    from multilayer import errors as module

    found = [value for value in vars(module).values() if _is_error(value)]
    rows = [[f"`{one.__name__}`", _first(one), str(one.exit_code)] for one in found]
    return "\n".join(table(["exception", "meaning", "exit code of `mlp`"], rows))


# Packages and tests


def packages() -> str:
    """The packages in the order of their imports, with the first sentence of each docstring."""
    rows = [["`errors.py`", _sentence(_docstring(PACKAGE / "errors.py"))]]
    rows += [[f"`{name}/`", _sentence(_docstring(PACKAGE / name / "__init__.py"))] for name in package_order()]
    return "\n".join(table(["package", "content"], rows))


def package_order() -> list[str]:
    """Return the packages in the order that `tests/test_layout.py` enforces."""
    for node in ast.parse((ROOT / "tests" / "test_layout.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ORDER":
            return [name for name in ast.literal_eval(node.value) if (PACKAGE / name).is_dir()]
    raise LookupError("tests/test_layout.py: expected a tuple ORDER")


def modules() -> str:
    """Every module of the package with the first sentence of its docstring."""
    lines: list[str] = []
    for name in package_order():
        paths = sorted((PACKAGE / name).rglob("*.py"))
        named = [path for path in paths if path.name != "__init__.py" or path.parent != PACKAGE / name]
        rows = [[f"`{path.relative_to(PACKAGE / name)}`", _sentence(_docstring(path))] for path in named]
        lines += [f"### {name}", "", *table(["module", "content"], [row for row in rows if row[1]]), ""]
    return "\n".join(lines)


def promise_tests() -> str:
    """The test files that name each promise (R1, R2, …)."""
    found: dict[int, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for number in set(re.findall(r"\bR([1-9][0-9]?)\b", path.read_text())):
            found.setdefault(int(number), set()).add(str(path.relative_to(ROOT)))
    rows = [[f"R{number}", ", ".join(f"`{name}`" for name in sorted(names))] for number, names in sorted(found.items())]
    return "\n".join(table(["promise", "tests that name it"], rows))


def decisions() -> str:
    """The records of `docs/decisions`, newest first."""
    rows: list[list[str]] = []
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"), reverse=True):
        text = path.read_text()
        found = re.search(r"^# (.+)\n\nDate: (.+)$", text, re.M)
        if found is not None:
            rows.append([path.name[:4], f"[{found[1]}]({path.name})", found[2].replace("-", NO_BREAK)])
    return "\n".join(table(["number", "decision", "date"], rows))


# Text


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    escaped = ([" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in rows)
    return [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(f"| {' | '.join(row)} |" for row in escaped)]


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def _first(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _sentence(text: str | None) -> str:
    """Return the first sentence of a text."""
    paragraph = " ".join(_plain(text or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", paragraph)[0]


def _plain(text: str) -> str:
    """Return a help text without the markup of the terminal."""
    return re.sub(r"\\\[", "[", re.sub(r"\[/?(?:bold|dim|italic|cyan|green|yellow|red)\]", "", text))


def _prose(text: str | None) -> str:
    return re.sub(r"(?<![`\w])(--[a-z][a-z-]*)", r"`\1`", _plain(text or ""))


PARTS: dict[str, Callable[[], str]] = {
    "grammar": grammar,
    "layers": layer_kinds,
    "activations": activations,
    "losses": losses,
    "optimizers": optimizers,
    "schedules": schedules,
    "implementations": implementations,
    "bundled": bundled,
    "events": events,
    "errors": errors,
    "packages": packages,
    "modules": modules,
    "promise-tests": promise_tests,
    "decisions": decisions,
    "detectors": partial(detector_pages.rules, table),
    "explained-findings": partial(detector_pages.explained, table),
    "detector-rates": detector_pages.rates,
}
"""Generated parts: `<!-- generated: NAME -->` on a line of a page is replaced by one."""


def part(name: str) -> str:
    if name not in PARTS:
        raise ValueError(f"unknown generated part {name!r}; valid: {', '.join(sorted(PARTS))}")
    return PARTS[name]()


def _pages() -> Mapping[str, Callable[[], str]]:
    from multilayer.cli.main import COMMANDS

    made: dict[str, Callable[[], str]] = {}
    for name, group in GROUPS.items():
        made[f"reference/python/{name}.md"] = _error_page if name == "errors" else partial(_python_page, *group)
    if other_names():
        made["reference/python/other.md"] = partial(_python_page, "Other names", "Further names.", other_names())
    made["reference/commands/index.md"] = _command_index
    return made | {f"reference/commands/{name}.md": partial(_command_page, name) for name in COMMANDS}


PAGES = _pages()
"""Pages that are generated as a whole, by their path below `docs`."""
