"""The structure of the package: allowed imports, public names, and the side effects that imports must not have."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import multilayer as ml

SOURCE = Path(ml.__file__).parent

ORDER = (
    "errors",
    "core",
    "nn",
    "spec",
    "pytorch",
    "costs",
    "drawing",
    "data",
    "engines",
    "runs",
    "export",
    "models",
    "interpretation",
    "diagnostics",
    "pages",
    "training",
    "estimators",
    "lab",
    "cli",
    "__main__",
)
"""Packages in order. Each imports only from the packages above it."""

PUBLIC = [
    "Activation",
    "BatchNorm",
    "Columns",
    "Dropout",
    "GLU",
    "GroupNorm",
    "Inputs",
    "KAN",
    "LayerNorm",
    "Linear",
    "MLPClassifier",
    "MLPRegressor",
    "Maxout",
    "MultilayerError",
    "RMSNorm",
    "Residual",
    "Scale",
    "Spec",
    "SpecError",
    "build",
    "check",
    "collapse",
    "cost",
    "draw",
    "explore",
    "feed_forward_block",
    "find_learning_rate",
    "fit",
    "from_torch",
    "hyperplane",
    "initialise",
    "linear",
    "load",
    "mlp",
    "neuron",
    "residual_mlp",
    "resume",
    "to_onnx",
    "to_torch",
    "trace",
    "variance",
]

MODULES = sorted(path for path in SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    """Return the module or package directly below `multilayer` that contains a file."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every module of ours that a file imports, at its top or inside functions, by its top-level package."""
    package = ["multilayer", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module or "").split(".")] if node.module else base
            for name in [module] if len(module) > 1 else [[*module, alias.name] for alias in node.names]:
                if name[0] == "multilayer" and len(name) > 1:
                    yield name[1], node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "multilayer" and len(parts) > 1:
                    yield parts[1], node.lineno


def name_of(path: Path) -> str:
    """Return the name of a module below `multilayer`: `nn.layers.base`, or `nn.layers` for its `__init__.py`."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


NAMES = {name_of(path): path for path in MODULES}


def module_imports(path: Path, *, for_types: bool = True) -> Iterator[tuple[str, str, str, int]]:
    """Yield every import of our modules: the module, the imported name, its name in this file, and the line number.

    The imported name is empty if the module itself is imported. `for_types` includes imports below TYPE_CHECKING.
    """
    package = path.relative_to(SOURCE).parts[:-1]
    tree = ast.parse(path.read_text())
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING" and not for_types
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            base = ("multilayer", *package)[: len(package) + 2 - node.level] if node.level else ()
            module, _, inside = ".".join([*base, *filter(None, [node.module])]).partition(".")
            if module != "multilayer":
                continue
            for alias in node.names:
                inner, here = f"{inside}.{alias.name}".strip("."), alias.asname or alias.name
                yield (inner, "", here, node.lineno) if inner in NAMES else (inside, alias.name, here, node.lineno)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return
    assert part in ORDER, f"{part} has no place in the order"
    for imported, line in imports(path):
        if imported == "__version__" or imported == part:
            continue
        assert ORDER.index(imported) < ORDER.index(part), f"{path}:{line}: {part} imports {imported}, which is below it"


def test_the_order_has_no_dead_entries() -> None:
    present = {part_of(path) for path in MODULES}
    assert set(ORDER) == present - {"__init__"}


def test_modules_of_one_package_have_no_import_cycles() -> None:
    """Imports inside functions count. Imports only for type checking do not."""
    needs = {
        name: {found for found, *_ in module_imports(path, for_types=False) if found.partition(".")[0] == part_of(path)}
        for name, path in NAMES.items()
    }
    while leaves := {name for name, wanted in needs.items() if not wanted & needs.keys() - {name}}:
        needs = {name: wanted for name, wanted in needs.items() if name not in leaves}
    circles = {name: sorted(wanted & needs.keys()) for name, wanted in needs.items()}
    assert not circles, f"these modules import each other in a cycle, or depend on such a cycle: {circles}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_private_names_stay_in_their_package(path: Path) -> None:
    """Only a module and its package may use its names `_x`. The compiled core counts as a normal module."""
    taken: dict[str, str] = {}
    for module, name, here, line in module_imports(path):
        foreign = module.partition(".")[0] != part_of(path)
        private = name.startswith("_") and not name.startswith("__") and name != "_core"
        assert not (foreign and private), f"{path}:{line}: {name} is private to {module}"
        if foreign and not name:
            taken[here] = module
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in taken:
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            assert not private, f"{path}:{node.lineno}: {node.attr} is private to {taken[node.value.id]}"


PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_say_what_belongs_there_and_what_does_not(package: str) -> None:
    docstring = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text())) or ""
    first, _, rest = docstring.partition("\n\n")
    assert len(first) > 40, f"{package} does not say what belongs there"
    elsewhere = [name for name in [*PACKAGES, "csrc/"] if name != package and f"`{name}`" in rest]
    assert re.search(r"\bbelongs?\b", rest), f"{package} does not say what does not belong there"
    assert elsewhere, f"{package} does not say in which package the rest belongs"


def test_public_names() -> None:
    assert sorted(ml.__all__, key=str.lower) == sorted(PUBLIC, key=str.lower)
    for name in ml.__all__:
        assert getattr(ml, name) is not None
    assert set(dir(ml)) == set(PUBLIC)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = ml.nothing


def test_public_names_are_not_replaced_by_submodules() -> None:
    """A submodule with the name of a function would replace the function when it is imported."""
    parts = {part_of(path) for path in MODULES}
    assert not parts & set(PUBLIC)


def modules_after(code: str) -> set[str]:
    """Return the modules in memory after code has run in a new interpreter."""
    script = f"import sys\n{code}\nprint(chr(10).join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def loaded(code: str) -> set[str]:
    """Return the top-level packages of these modules."""
    return {name.split(".")[0] for name in modules_after(code)}


HEAVY = {"torch", "sklearn", "matplotlib", "pandas", "scipy", "rich", "typer"}


WITH_OPTIONS = [
    name
    for name in PUBLIC
    if inspect.isfunction(getattr(ml, name))
    and {p.kind for p in inspect.signature(getattr(ml, name)).parameters.values()} & {inspect.Parameter.KEYWORD_ONLY}
    and name not in ("fit", "find_learning_rate")  # they take any keyword, and check it
]


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_an_error_for_a_misspelled_option_names_the_nearest(name: str) -> None:
    function = getattr(ml, name)
    option = next(p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY)
    with pytest.raises(ml.MultilayerError, match=rf"^{name}: unknown argument '{option}x': did you mean '{option}'\?"):
        function(**{f"{option}x": 1})
    with pytest.raises(TypeError):
        function(**{f"{option}x": 1})


def test_importing_multilayer_imports_nothing_heavy() -> None:
    assert not loaded("import multilayer") & HEAVY


@pytest.mark.parametrize(
    "code",
    [
        "import multilayer as ml; ml.cost('784-256-10').to_json()",
        "import multilayer as ml; ml.variance('8-8-8')",
        "import multilayer as ml; ml.Spec.from_json(ml.residual_mlp(4, 2).to_json())",
        "import multilayer.engines.numpy_engine, multilayer.training, multilayer.runs.events, multilayer.core.machine",
        "import multilayer.engines.fused_engine",
    ],
)
def test_what_needs_no_torch_does_not_import_it(code: str) -> None:
    assert not loaded(code) & {"torch", "sklearn", "matplotlib"}


@pytest.mark.parametrize("code", ["import multilayer.runs, multilayer.cli.runs", "import multilayer.cli.cost"])
def test_what_reads_no_table_does_not_import_the_readers(code: str) -> None:
    found = modules_after(code)
    assert not found & {"pyarrow", "multilayer.data", "numpy.polynomial"}


def test_torch_comes_with_the_model() -> None:
    assert "torch" in loaded("import multilayer as ml; ml.build('2-1')")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_runs_code_from_data(path: Path) -> None:
    banned = {"pickle", "joblib", "dill", "cloudpickle", "marshal", "shelve"}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} == {"Parallel", "delayed"}:
            continue  # worker processes, which exchange data with this process only
        assert not {name.split(".")[0] for name in names} & banned, f"{path}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec", "compile"), f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_are_short_and_have_a_docstring(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 500, f"{path} should be split"
    assert len(ast.get_docstring(ast.parse(text)) or "") > 20, f"{path} needs a docstring"


def test_no_two_places_share_more_than_15_lines() -> None:
    """Blank lines and indentation are ignored. Imports and closing brackets count as lines."""
    places: dict[tuple[str, ...], str] = {}
    for path in MODULES:
        lines = [(i, line.strip()) for i, line in enumerate(path.read_text().splitlines(), 1) if line.strip()]
        for start in range(len(lines) - 15):
            run = tuple(line for _, line in lines[start : start + 16])
            place = f"{path}:{lines[start][0]}"
            assert places.setdefault(run, place) == place, f"{place} repeats {places[run]}"


ARCHITECTURE = (Path(__file__).parents[1] / "docs/explanation/architecture.md").read_text()


def test_the_documentation_lists_the_packages_in_their_order() -> None:
    tiers = re.findall(r'class="small"[^>]*>([\w ·]+)<', ARCHITECTURE)
    drawn = [name for tier in tiers for name in tier.split(" · ")]
    assert tuple(drawn) == tuple(name for name in ORDER if name != "__main__")


@pytest.mark.parametrize(("file", "names"), re.findall(r"`([\w/]+\.py)`(?:: | \()?`?([\w.]*)`?", ARCHITECTURE))
def test_what_the_documentation_names_exists(file: str, names: str) -> None:
    path = SOURCE / file if (SOURCE / file).exists() else Path(__file__).parents[1] / file
    tree: ast.AST = ast.parse(path.read_text())
    for name in filter(None, names.split(".")):
        found = [node for node in ast.walk(tree) if getattr(node, "name", None) == name]
        assert found, f"{file} has no {name}"
        tree = found[0]
