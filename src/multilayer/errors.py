"""The exceptions of the package, and functions for their messages.

    MultilayerError
    ├── SpecError        a network description is invalid; the message shows where in its text or JSON
    ├── BatchError       a layer cannot use a training batch
    ├── OptionError      an option has an invalid value
    ├── DataError        a table cannot be used; the message names the file, row and column
    ├── EventError       a line in the log of a run is not an event
    ├── StateError       a training state does not belong to this network or optimizer
    ├── StorageError     a file cannot be read or written
    ├── FileError        a model file or checkpoint has invalid content
    ├── RunError         a run folder does not exist, is in use, or has no valid checkpoint
    ├── MissingExtra     an optional library is not installed
    └── BudgetExceeded   a cost is above a limit that the user set

A message says what was expected, what was received and where, and what to do. The command line prints it without a
traceback and exits with `exit_code`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class MultilayerError(ValueError):
    """Base class of all errors that this package raises on purpose. It is a `ValueError`.

    Attributes
    ----------
    exit_code : int
        Exit code of the command line: 1 for `BudgetExceeded`, otherwise 2.

    Examples
    --------
    >>> import multilayer as ml
    >>> try:
    ...     ml.Spec.parse("784-256:gelo-10")
    ... except ml.MultilayerError as error:
    ...     print(str(error).splitlines()[0].partition("?")[0])
    unknown layer or activation 'gelo': did you mean 'gelu'
    """

    exit_code = 2


class SpecError(MultilayerError):
    """A network description cannot be read, or its layers do not fit together.

    Examples
    --------
    >>> import multilayer as ml
    >>> ml.Dropout(2)
    Traceback (most recent call last):
    multilayer.errors.SpecError: dropout must be at least 0 and below 1, got 2
    """


class BatchError(MultilayerError):
    """A layer cannot use a training batch.

    Examples
    --------
    >>> import multilayer as ml
    >>> ml.fit("4-8:batchnorm-3", "iris", batch_size=1, quiet=True)
    Traceback (most recent call last):
    multilayer.errors.BatchError: batchnorm needs at least 2 rows in a training batch, got 1: ...
    """


class OptionError(MultilayerError):
    """An option has an invalid value.

    Examples
    --------
    >>> import multilayer as ml
    >>> ml.cost("4-8-3", batch=0)
    Traceback (most recent call last):
    multilayer.errors.OptionError: batch must be a whole number of at least 1, got 0
    """


class UnknownArgument(OptionError, TypeError):
    """A function or method has no argument with this name.

    Examples
    --------
    >>> import multilayer as ml
    >>> ml.variance("4-8-3", sed=1)
    Traceback (most recent call last):
    multilayer.errors.UnknownArgument: variance: unknown argument 'sed': did you mean 'seed'? ...
    """


class DataError(MultilayerError):
    """A table cannot be read, or does not fit the trained model.

    Examples
    --------
    >>> import multilayer as ml
    >>> ml.fit("2-1", ([[1.0, 2.0], [3.0, float("inf")]], [0.5, 1.5]))
    Traceback (most recent call last):
    multilayer.errors.DataError: ...row 2, column 'x1': numbers must be finite, got inf: ...
    """


class EventError(MultilayerError):
    """A line in the log of a run is not an event.

    Examples
    --------
    >>> from multilayer.runs import events
    >>> events.from_dict({"event": "epoch end"})
    Traceback (most recent call last):
    multilayer.errors.EventError: unknown event 'epoch end': did you mean 'epoch'? ...
    """


class StateError(MultilayerError):
    """A training state does not belong to this network, optimizer or version.

    Examples
    --------
    >>> from multilayer.engines import State
    >>> State.from_tensors({})
    Traceback (most recent call last):
    multilayer.errors.StateError: a state needs its counters, got none
    """


class StorageError(MultilayerError):
    """A file cannot be read or written. Existing files are unchanged.

    Examples
    --------
    >>> import multilayer as ml
    >>> ml.load("no-such-file.safetensors")
    Traceback (most recent call last):
    multilayer.errors.StorageError: cannot read no-such-file.safetensors (ENOENT): ...
    """


class FileError(MultilayerError):
    """A model file or checkpoint is invalid, damaged, or written by a newer version.

    Examples
    --------
    >>> from multilayer.models.trained_model import TrainedModel
    >>> TrainedModel.from_bytes(b"not a model")
    Traceback (most recent call last):
    multilayer.errors.FileError: model file: not a model file but text, such as a table: ...
    """


class RunError(MultilayerError):
    """A run folder does not exist, is in use by another process, or has no valid checkpoint.

    Examples
    --------
    >>> import multilayer as ml
    >>> ml.resume("no-such-run")
    Traceback (most recent call last):
    multilayer.errors.RunError: there is no run at no-such-run: pass the folder of a run
    """


EXTRAS = {
    "torch": "torch",
    "matplotlib": "plot",
    "optuna": "tune",
    "onnx": "onnx",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
}
"""The extra of the package that installs each optional library."""


class MissingExtra(MultilayerError, ModuleNotFoundError):
    """An optional library is not installed.

    Examples
    --------
    >>> raise MissingExtra("matplotlib", "a plot")
    Traceback (most recent call last):
    multilayer.errors.MissingExtra: a plot needs matplotlib, which is not installed: pip install 'multilayer[plot]'
    """

    def __init__(self, library: str, purpose: str) -> None:
        message = f"{purpose} needs {library}, which is not installed: pip install 'multilayer[{EXTRAS[library]}]'"
        ModuleNotFoundError.__init__(self, message, name=library)
        self.purpose = purpose

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str | None, str]]:
        return MissingExtra, (self.name, self.purpose)

    def when_called(self, name: str) -> Callable[..., NoReturn]:
        """Return a function that raises this error, so that `from multilayer import *` and `help` still work."""

        def missing(*args: object, **kwargs: object) -> NoReturn:
            raise MissingExtra(str(self.name), self.purpose)

        missing.__name__ = missing.__qualname__ = name
        missing.__doc__ = str(self)
        return missing


@contextmanager
def needed_by(purpose: str) -> Generator[None]:
    """Report an optional library that is not installed. Import it, or a module that uses it, in the `with` block.

    >>> with needed_by("a plot"):
    ...     raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
    Traceback (most recent call last):
    multilayer.errors.MissingExtra: a plot needs matplotlib, which is not installed: pip install 'multilayer[plot]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise MissingExtra(error.name, purpose) from None


class BudgetExceeded(MultilayerError):
    """A cost is above a limit that the user set.

    Examples
    --------
    >>> import multilayer as ml
    >>> from multilayer.costs import budget
    >>> budget.require(budget.check(ml.cost("784-256-10"), {"parameters": 200_000}))
    Traceback (most recent call last):
    multilayer.errors.BudgetExceeded: over budget: parameters is 203,530: 1.02 times the limit of 200,000, 3,530 over
    """

    exit_code = 1


NEAREST = 5
"""Number of names in a message if there are more than `LISTED`."""
LISTED = 10
_LISTED_BY = {
    "activation": "mlp activations",
    "layer or activation": "mlp activations and docs/reference/network-grammar.md",
    "initialization scheme": "mlp init --help",
    "option": "mlp train --help",
    "loss": "mlp cost --help",
    "optimizer": "mlp cost --help",
    "command": "mlp --help",
}
"""Command or page that lists all names of a kind."""


_FAMILIAR = {
    "hidden_layer_sizes": ["hidden"],
    "hidden_sizes": ["hidden"],
    "layers": ["hidden"],
    "units": ["hidden"],
    "max_iter": ["epochs"],
    "max_epochs": ["epochs"],
    "n_epochs": ["epochs"],
    "num_epochs": ["epochs"],
    "early_stopping": ["patience"],
    "early_stopping_rounds": ["patience"],
    "n_iter_no_change": ["patience"],
    "validation_fraction": ["validation"],
    "validation_split": ["validation"],
    "validation_data": ["validation"],
    "eval_set": ["validation"],
    "X_val": ["validation"],
    "learning_rate_init": ["learning_rate"],
    "lr": ["learning_rate"],
    "eta": ["learning_rate"],
    "alpha": ["weight_decay"],
    "solver": ["optimizer"],
    "criterion": ["loss"],
    "objective": ["loss"],
    "scoring": ["metric"],
    "eval_metric": ["metric"],
    "metrics": ["metric"],
    "n_estimators": ["ensemble"],
    "random_state": ["seed"],
    "seed": ["random_state"],
    "n_jobs": ["threads", "n_threads"],
    "threads": ["n_threads"],
    "verbose": ["quiet"],
    "quiet": ["verbose"],
    "callbacks": ["each_epoch"],
    "cat_features": ["categorical"],
    "categorical_features": ["categorical"],
    "y": ["target"],
    "label": ["target"],
    "time": ["time_column"],
    "times": ["time_column"],
    "date_column": ["time_column"],
    "groups": ["group"],
    "group": ["groups"],
    "weight": ["sample_weight"],
    "weights": ["sample_weight"],
    "sample_weight_eval_set": ["sample_weight_val"],
    "validation_weight": ["sample_weight_val"],
    "max_time": ["time_limit"],
    "network": ["spec", "arch"],
    "architecture": ["spec", "arch"],
    "model": ["spec", "arch"],
    "spec": ["arch"],
    "arch": ["spec"],
}
"""Names of options in scikit-learn, Keras, PyTorch and gradient boosting libraries, with ours for the same purpose."""


def unknown_name(what: str, name: str, valid: Iterable[str]) -> str:
    """Return the message for an unknown name: the nearest name, then all valid names or the nearest five.

    For options and arguments, names of other libraries count as well.

    >>> unknown_name("optimizer", "adm", ["sgd", "adam"])
    "unknown optimizer 'adm': did you mean 'adam'? valid: adam, sgd"
    >>> unknown_name("column", "ages", "age area city date height income job name rent street weight".split())
    "unknown column 'ages': did you mean 'age'? nearest of 11: age, area, date, name, rent"
    >>> unknown_name("option", "max_iter", ["epochs", "patience"])
    "unknown option 'max_iter': did you mean 'epochs'? valid: epochs, patience"
    """
    names = sorted(valid)
    meant = (nearest_option if what in ("option", "argument") else nearest)(str(name), names)
    hint = f"unknown {what} {name!r}: " + (f"did you mean {meant!r}? " if meant else "")
    if len(names) <= LISTED:
        return f"{hint}valid: {', '.join(names)}"
    likeness = {one: difflib.SequenceMatcher(None, str(name).lower(), one.lower()).ratio() for one in names}
    close = sorted(names, key=lambda one: (one != meant, -likeness[one], len(one), one))[:NEAREST]
    place = f" (all: {_LISTED_BY[what]})" if what in _LISTED_BY else ""
    return f"{hint}nearest of {len(names)}: {', '.join(close)}{place}"


def explain_unknown(
    function: Callable[P, R], *, error: Callable[[tuple[Any, ...], str], UnknownArgument] | None = None
) -> Callable[P, R]:
    """Decorate a function so that an unknown keyword raises `UnknownArgument`, which names the nearest argument.

    A function that takes any keyword checks them itself, and is not changed. `error` returns another error for the
    positional arguments of a call and the unknown name.

    >>> @explain_unknown
    ... def area(*, width: float = 1.0, height: float = 1.0) -> float:
    ...     return width * height
    >>> area(widht=2.0)
    Traceback (most recent call last):
    multilayer.errors.UnknownArgument: area: unknown argument 'widht': did you mean 'width'? valid: height, width
    """
    parameters = inspect.signature(function).parameters
    valid = tuple(parameters)
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return function

    @functools.wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name not in valid:
                if error is not None:
                    raise error(args, name)
                raise UnknownArgument(f"{function.__name__}: {unknown_name('argument', name, valid)}")
        return function(*args, **keywords)

    return checked


def nearest_option(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid option with the meaning that `name` has in another library, else the nearest one.

    >>> nearest_option("lr", ["l2", "learning_rate"]), nearest_option("--lr", ["--l2", "--learning-rate"])
    ('learning_rate', '--learning-rate')
    """
    options = {one.lstrip("-").replace("-", "_"): one for one in valid}
    familiar = _FAMILIAR.get(name.lstrip("-").replace("-", "_"), [])
    return next((options[one] for one in familiar if one in options), None) or nearest(name, options.values())


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the nearest valid name, ignoring case. A name with two swapped letters comes first.

    >>> nearest("AGE", ["age", "sex"]), nearest("gleu", ["gelu", "glu"]), nearest("x", ["age"])
    ('age', 'gelu', None)
    """
    names = {one.lower(): one for one in reversed(list(valid))}
    low = name.lower()
    for spelling in (low, *(low[:i] + low[i : i + 2][::-1] + low[i + 2 :] for i in range(len(low) - 1))):
        if spelling in names:
            return names[spelling]
    close = difflib.get_close_matches(low, sorted(names), n=1, cutoff=0.5)
    return names[close[0]] if close else None


_INSIDE = ("multilayer", "sklearn", "contextlib")
"""Packages that a warning does not point to, because the user did not write their code."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the line of the user's code. On the command line, print it to standard error."""
    if _ON_COMMAND_LINE.get():
        print(f"warning: {printable(message)}", file=sys.stderr)
        return
    frame, level = inspect.currentframe(), 1
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _INSIDE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


_ON_COMMAND_LINE: ContextVar[bool] = ContextVar("on command line", default=False)
_COMMAND_LINE_NAMES = {"spec": "arch"}
"""Options with a different name on the command line: commands read the text, file or run of a network as ARCH."""


def option_name(name: str) -> str:
    """Return the name of an option for a message: as in Python, or as on the command line.

    >>> option_name("batch_size")
    'batch_size'
    >>> with on_command_line():
    ...     option_name("batch_size")
    '--batch-size'
    """
    return f"--{_COMMAND_LINE_NAMES.get(name, name).replace('_', '-')}" if _ON_COMMAND_LINE.get() else name


def option(name: str, value: str = "…") -> str:
    """Return an option with its value for a message: as in Python, or as on the command line.

    >>> option("batch_size", "32"), option("compile", "True")
    ('batch_size=32', 'compile=True')
    >>> with on_command_line():
    ...     option("batch_size", "32"), option("compile", "True")
    ('--batch-size 32', '--compile')
    """
    if not _ON_COMMAND_LINE.get():
        return f"{name}={value}"
    return (
        option_name(name) if value == "True" else f"{option_name(name)} {value.lower() if value == 'None' else value}"
    )


@contextmanager
def on_command_line() -> Generator[None]:
    """Within this context, messages name options as on the command line."""
    token = _ON_COMMAND_LINE.set(True)
    try:
        yield
    finally:
        _ON_COMMAND_LINE.reset(token)


def printable(text: str, *, lines: bool = False) -> str:
    """Escape control characters, which names from data can contain. With `lines`, line breaks are kept.

    >>> printable("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\\\n'
    """
    return "".join(c if c.isprintable() or (lines and c == "\n") else repr(c)[1:-1] for c in text)
