"""The laboratory: rows, criteria, results, and what holds for every experiment."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import multilayer as ml
from multilayer.errors import DataError, FileError, OptionError
from multilayer.lab import NAMES, Result, get
from multilayer.lab.criteria import Criterion, interval, verdict
from multilayer.lab.rows import Rows
from multilayer.lab.running import measure
from support.experiments import tiny

# Every experiment


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_declares_everything(name: str) -> None:
    experiment = get(name)
    assert experiment.name == name
    assert experiment.claim.endswith(".")
    assert experiment.sources
    assert experiment.criteria
    assert len(experiment.method) > 200, "the docstring of the file says how the experiment measures"
    assert experiment.seeds >= 3
    assert experiment.full_seeds >= experiment.seeds
    assert type(experiment.settings) is type(experiment.full) is type(experiment.tiny)
    assert experiment.settings not in (experiment.full, experiment.tiny)
    for criterion in experiment.criteria:
        assert criterion.statement.endswith(".")


@pytest.mark.parametrize("name", [name for name in NAMES if get(name).takes_data and name != "layer_features"])
def test_an_experiment_accepts_a_small_noisy_table(name: str, tmp_path: Path) -> None:
    """Classes that cannot be learned, repeated rows, and fewer rows than the settings ask for."""
    draw = np.random.default_rng(0)
    lines = [f"{draw.integers(5)},{draw.random():.1f},{draw.choice(['r', 'g'])},{i % 2 == 0}" for i in range(120)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["a,b,color,class", *lines]))
    experiment = get(name)
    settings = experiment.sized("tiny", {"data": str(path)})
    result = measure(experiment, settings, seeds=1, workers=1, quiet=True)
    assert result.summary
    assert json.loads(result.to_json())["verdict"] == result.verdict
    assert result.figure().axes


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("activation_functions", {"activations": ("relu", "gelu")}),
        ("activation_functions", {"targets": ("tabel",)}),
        ("batch_size", {"batches": (8,)}),
        ("dead_units", {"rates": (0.01,)}),
        ("double_descent", {"widths": (3,)}),
        ("parity", {"bits": ()}),
        ("random_labels", {"shares": (1.0,)}),
        ("residual_connections", {"depths": (4,)}),
        ("restarts", {"restarts": 1}),
        ("sharp_minima", {"batches": (4,)}),
        ("vanishing_gradients", {"depths": (1,)}),
        ("variance_through_depth", {"schemes": ("he",)}),
    ],
)
def test_settings_without_what_the_criteria_compare_are_refused_before_the_measurement(
    name: str, settings: dict
) -> None:
    began = time.monotonic()
    with pytest.raises(OptionError):
        ml.lab.run(name, workers=1, **settings)
    assert time.monotonic() - began < 1


# Rows


def test_rows_are_selected_and_grouped() -> None:
    rows = Rows([{"seed": 0, "width": 2, "error": 1.0}, {"seed": 1, "width": 2, "error": 3.0}, {"seed": 0, "width": 4}])
    assert rows.where(width=2).mean("error") == 2.0
    assert rows.where(width=2).median("error") == 2.0
    assert [key for key, _ in rows.by("seed")] == [(0,), (1,)]
    assert rows.distinct("width") == [2, 4]
    assert len(rows[1:]) == 2
    assert rows.columns == ("seed", "width", "error")
    assert rows.to_csv().splitlines() == ["seed,width,error", "0,2,1.0", "1,2,3.0", "0,4,"]
    assert rows.to_arrow().to_pylist()[2] == {"seed": 0, "width": 4, "error": None}


def test_a_missing_column_is_an_error_that_names_the_nearest_one() -> None:
    with pytest.raises(DataError, match="unknown column 'eror': did you mean 'error'"):
        Rows([{"error": 1.0}]).mean("eror")


# Criteria


def test_the_interval_is_that_of_the_t_distribution() -> None:
    values = [0.3, 0.5, 0.4, 0.9]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert interval(values) == pytest.approx((np.mean(values), low, high))
    assert interval([2.0]) == (2.0, 2.0, 2.0)
    assert interval([1.0, 100.0, 10.0], log=True) == pytest.approx([10**value for value in interval([0, 2, 1])])
    assert interval([1.0, math.inf]) == (math.inf, 1.0, math.inf)


@pytest.mark.parametrize(
    ("values", "bound", "outcome"),
    [
        ([1.0, 1.1], {"at_least": 0.2}, "met"),
        ([1.0, 1.1], {"at_least": 1.05}, "unclear"),
        ([1.0, 1.1], {"at_least": 9.0}, "not met"),
        ([1.0, 1.1], {"at_most": 9.0}, "met"),
        ([1.0, 1.1], {"at_most": 1.05}, "unclear"),
        ([1.0, 1.1], {"at_most": 0.1}, "not met"),
        ([math.inf, math.inf], {"at_least": 2.0}, "met"),
    ],
)
def test_a_criterion_is_met_only_if_the_whole_interval_is(values: list[float], bound: dict, outcome: str) -> None:
    rows = Rows({"seed": i, "x": value} for i, value in enumerate(values))
    assert Criterion(statement="x.", value=lambda own: own.mean("x"), **bound).judge(rows).outcome == outcome


def test_a_number_that_the_rows_do_not_determine_is_unclear() -> None:
    rows = Rows({"seed": i, "x": math.inf, "zero": 0.0} for i in range(3))
    for value in (
        lambda own: own.mean("x") / own.mean("x"),
        lambda own: 1 / own.mean("zero"),
        lambda own: own.where(x=1.0).mean("x"),
    ):
        found = Criterion(statement="x.", value=value, at_least=0.0).judge(rows)
        assert (found.outcome, found.measured) == ("unclear", "not measured")
    zero = Criterion(statement="x.", value=lambda own: own.mean("zero"), at_most=1.0, log=True).judge(rows)
    assert (zero.outcome, zero.low, zero.high) == ("met", 0.0, 0.0)


def test_one_seed_has_no_interval() -> None:
    assert "1 seed: there are no intervals" in tiny("vanishing_gradients", seeds=1).basis
    assert "2 seeds, 95 % intervals" in tiny("vanishing_gradients").basis


def test_a_result_names_the_command_that_repeats_it() -> None:
    experiment = get("activation_functions")
    rows = Rows([{"seed": 7}])

    def command(size: str = "default", **changes: object) -> str:
        return Result.of(experiment, experiment.sized(size, changes), rows, seconds=1).command  # type: ignore[arg-type]

    assert command() == "mlp lab activation_functions --seeds 1 --first-seed 7"
    assert command("full", data="my table.csv").endswith("--first-seed 7 --full --data 'my table.csv'")
    assert command(steps=3).startswith("ml.lab.activation_functions(seeds=1, first_seed=7, data='digits'")
    assert get("depth_and_width").sized("default", {"data": "iris"}).tables == ("iris",)


def test_the_verdict_follows_from_the_outcomes() -> None:
    rows = Rows({"seed": i, "x": x} for i, x in enumerate([1.0, 1.1]))
    met, unclear, failed = (
        Criterion(statement="x.", value=lambda own: own.mean("x"), at_least=bound).judge(rows)
        for bound in (0.2, 1.05, 9.0)
    )
    assert verdict([met, met]) == "holds"
    assert verdict([met, unclear]) == verdict([met, failed]) == "holds partly"
    assert verdict([unclear, failed]) == verdict([failed]) == "does not hold here"


# Results


def test_the_rows_do_not_depend_on_the_number_of_workers() -> None:
    assert list(tiny("vanishing_gradients").rows) == list(tiny("vanishing_gradients", workers=2).rows)


def test_a_measurement_uses_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    from threadpoolctl import threadpool_info

    from multilayer.lab import running

    experiment = replace(get("vanishing_gradients"), measure=lambda *_: [{"threads": _threads(threadpool_info())}])
    monkeypatch.setattr(running, "get", lambda name: experiment)
    _, rows = running.work("", experiment.tiny, running._Job(0, 0))
    assert rows == [{"seed": 0, "threads": 1}]


def _threads(pools: list[dict]) -> int:
    return max(pool["num_threads"] for pool in pools)


def test_other_seeds_give_other_rows() -> None:
    assert list(tiny("vanishing_gradients").rows) != list(tiny("vanishing_gradients", first_seed=5).rows)


def test_a_result_is_written_and_read(tmp_path: Path) -> None:
    result = tiny("vanishing_gradients")
    paths = result.save(tmp_path / "out")
    assert [path.suffix for path in paths] == [".json", ".csv", ".svg", ".png"]
    stored = json.loads(paths[0].read_text())
    assert stored["name"] == "vanishing_gradients"
    assert stored["verdict"] == result.verdict
    assert stored["data"] == list(result.rows)
    again = Result.read(paths[0])
    assert again.to_dict() == result.to_dict()
    assert paths[3].read_bytes().startswith(b"\x89PNG")
    assert "Vanishing gradients" in paths[2].read_text()


def test_a_file_that_is_no_result_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"name": "vanishing_gradients"}')
    with pytest.raises(FileError, match="is not the result of an experiment"):
        Result.read(tmp_path / "x.json")


def test_ctrl_c_keeps_the_complete_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = get("vanishing_gradients")
    calls = 0

    def interrupted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return original(*arguments)

    from multilayer.lab import running

    original = running.work
    monkeypatch.setattr(running, "work", interrupted)
    with pytest.warns(UserWarning, match="was interrupted: the result has 1 of 3 seeds"):
        result = measure(experiment, experiment.tiny, seeds=3, workers=1, quiet=True)
    assert result.seeds == [0]
    assert result.interrupted


def test_bad_settings_are_errors_that_say_what_to_do() -> None:
    with pytest.raises(OptionError, match="unknown setting 'widht': did you mean 'width'"):
        ml.lab.vanishing_gradients(widht=3)
    with pytest.raises(OptionError, match="cannot use another table: leave out"):
        ml.lab.vanishing_gradients(data="iris")
    with pytest.raises(OptionError, match="data must be the name of a bundled table or the path of a file, got list"):
        ml.lab.dead_units(data=[1, 2])
    assert get("dead_units").sized("tiny", {"data": Path("t.csv")}).data == "t.csv"
    with pytest.raises(OptionError, match="seeds must be at least 1"):
        ml.lab.vanishing_gradients(seeds=0)
    with pytest.raises(OptionError, match="unknown experiment"):
        ml.lab.get("vanishing")
    with pytest.raises(AttributeError):
        _ = ml.lab.nothing
