"""The command `mlp`. Each sub-command is a module, which is imported only when the command is called.

A sub-command is the function `NAME` in the module `cli/NAME.py`. Its docstring is the help text. The module's
`EXAMPLES` are listed below the help, followed by its `NOTE`, if any.

| what happens | standard error | exit code |
|---|---|---|
| an error of this package, or an invalid option | one message without a traceback | that of the error: 2, or 1 |
| Ctrl-C | nothing | 130 |
| the reader of a pipe ends, as in `mlp cost … | head` | nothing | 141 |
"""

from __future__ import annotations

import inspect
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import MultilayerError, OptionError, nearest_option, on_command_line, printable, unknown_name

PANELS = {
    "Train": ("train", "tune", "lr", "resume"),
    "Use a model": ("predict", "evaluate", "check", "export", "explore"),
    "Compare runs": ("runs", "report"),
    "Inspect a network": ("cost", "show", "activations", "init"),
    "Learn": ("lab",),
}
"""Commands by the panel of `mlp --help`."""
COMMANDS = tuple(name for names in PANELS.values() for name in names)

_RUN_WITHOUT_ARGUMENTS = ("train", "runs", "explore", "activations", "lab")
"""Commands that do not print their help if they are called without arguments."""

UsageError: Any = typer.BadParameter.__mro__[1]
"""The exception that typer raises for invalid arguments."""

_BROKEN_PIPE = 128 + 13  # the code that a shell reports for a process ended by SIGPIPE
_INTERRUPTED = 128 + 2

EXAMPLES = (
    "mlp train digits",
    "mlp train people.csv --target income --epochs 50",
    "mlp cost 784-256-128-10 --batch 32 --rows 60000",
    'mlp cost "20-384-[layernorm-1536:gelu-384]*6-10" --memory 2GB',
    "mlp activations gelu relu --plot out.svg",
)
NOTE = """A network is written as its widths, such as 784-256-128-10. docs/reference/network-grammar.md describes the
full grammar. mlp COMMAND --help lists the options of a command."""


def epilog(examples: Sequence[str], note: str = "") -> str:
    """Return the text below the options: examples, one per line, and a note."""
    return flowing("\n\n".join(["Examples:", *examples, *([note] if note else [])]))


def flowing(text: str) -> str:
    """Return the text with one line per paragraph, which the terminal wraps, and with `[` escaped for rich.

    >>> flowing("One\\n    line.\\n\\n    Another.")
    'One line.\\n\\nAnother.'
    """
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n")).replace("[", "\\[")


class _Flags:
    """Help without the types of flags and arguments, and with `[default: …]` in the same style for every option."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # pyright: ignore[reportAttributeAccessIssue,reportUnknownVariableType,reportUnknownMemberType]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None  # pyright: ignore[reportUnknownLambdaType]
            shown = getattr(param, "show_default", None)
            default = shown if isinstance(shown, str) else getattr(param, "default", None)
            if (
                shown and default is not None and default is not False
            ):  # typer would put it in parentheses, or on a separate line
                param.help = f"{param.help} [dim]\\[default: {default}][/dim]"
                param.show_default = False
        return params


class Command(_Flags, TyperCommand):
    """One sub-command."""


class Commands(_Flags, TyperGroup):
    """Import the sub-commands, and turn errors into messages and exit codes."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".{cmd_name}", __package__)
        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        function = getattr(module, cmd_name)
        make = single.command(
            cmd_name,
            cls=Command,
            help=flowing(function.__doc__),
            epilog=epilog(module.EXAMPLES, getattr(module, "NOTE", "")),
            no_args_is_help=cmd_name not in _RUN_WITHOUT_ARGUMENTS,
            rich_help_panel=next(panel for panel, names in PANELS.items() if cmd_name in names),
        )
        make(function)
        return typer.main.get_command(single)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise OptionError(unknown_name("command", args[0], COMMANDS))
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Print a usage error as one line, like any other error."""
        given = sys.argv[1:] if args is None else list(args)
        try:
            code = super().main(given, prog_name, complete_var, False, windows_expand_args, **extra)
        except UsageError as error:
            if type(error).__name__ != "NoArgsIsHelpError":  # for that error, typer has printed the help
                _print_error(usage_message(error, given))
            code = MultilayerError.exit_code
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code

    def invoke(self, ctx: Any) -> Any:
        try:
            with on_command_line():
                return super().invoke(ctx)
        except MultilayerError as error:
            _print_error(str(error))
            raise typer.Exit(error.exit_code) from None
        except MemoryError as error:
            _print_error(f"not enough memory on this machine: {error or 'choose a smaller network or batch'}")
            raise typer.Exit(MultilayerError.exit_code) from None
        except BrokenPipeError:
            _stop_writing()
            raise typer.Exit(_BROKEN_PIPE) from None


def _print_error(message: str) -> None:
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(printable(message, lines=True), err=True)


def usage_message(error: Any, args: Sequence[str]) -> str:
    """Return the message for a usage error: the option, the expected value, the given value."""
    param = getattr(error, "param", None)
    command = f"mlp {args[0]}" if args and args[0] in COMMANDS else "mlp"
    listed = f"{command} --help lists all options"
    if hasattr(error, "possibilities"):
        options = [name for one in error.ctx.command.get_params(error.ctx) for name in (*one.opts, *one.secondary_opts)]
        meant = nearest_option(error.option_name, options)
        hint = f"did you mean {meant}? " if meant else ""
        return f"unknown option {error.option_name} of {command}: {hint}{listed}"
    if type(error).__name__ == "MissingParameter" and param is not None:
        meaning = f" ({param.help.rstrip('.')})" if getattr(param, "help", None) else ""
        return f"{command} needs {param.metavar or param.human_readable_name}{meaning}: {command} --help shows how"
    if isinstance(error, typer.BadParameter) and param is not None:
        expected = error.message.partition(", unable")[0].removeprefix("Input should be ")
        for typers, plain in _PLAIN.items():
            expected = expected.replace(typers, plain)
        return f"{param.opts[0]} must be {expected}{_given(param.opts, args)}"
    text = error.format_message().rstrip(".")
    return f"{command}: {text[:1].lower()}{text[1:]}: {listed}"


_PLAIN = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}
"""Expressions in messages of typer, and their replacements."""


def _given(names: Sequence[str], args: Sequence[str]) -> str:
    """Return the value of an option as the user wrote it, for the end of a message."""
    for name in names:
        for i, arg in enumerate(args):
            if arg == name and i + 1 < len(args):
                return f", got {args[i + 1]!r}"
            if arg.startswith(f"{name}="):
                return f", got {arg.partition('=')[2]!r}"
    return ""


app = typer.Typer(
    name="mlp",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=epilog(EXAMPLES, NOTE),
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from ..core.machine import instruction_sets
        from ..core.version import __version__

        typer.echo(f"mlp {__version__} ({', '.join(instruction_sets()) or 'baseline instructions'})")
        raise typer.Exit


@app.callback()
def describe(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and the CPU instructions in use.",
        ),
    ] = False,
) -> None:
    """Train feed-forward networks, compute their cost, and inspect them."""


def main() -> NoReturn:
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # `mlp … >&-`
        _print_error("standard output is closed: redirect it to a file or a terminal")
        sys.exit(MultilayerError.exit_code)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot print σ prints a question mark
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        _stop_writing()
        code = _BROKEN_PIPE
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except OSError as error:
        if error.filename is not None:
            raise  # an error of another file is a bug: show the traceback
        _stop_writing()
        _print_error(f"cannot write to standard output: {error.strerror or error}")
        code = MultilayerError.exit_code
    sys.exit(code)


def _stop_writing() -> None:
    """Discard further output. Otherwise, Python would report an error when it flushes the closed pipe at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> int:
    try:
        app(prog_name="mlp")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
