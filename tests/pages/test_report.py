"""The report of a run: its numbers agree with scikit-learn, it needs no data, and a failed report keeps the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.data import TrainingData
from multilayer.errors import MultilayerError
from multilayer.models.importance import places
from multilayer.pages.report import quality
from multilayer.pages.report.report import history, report
from multilayer.runs import RunFolder, events
from multilayer.training.run import Run, write_report
from multilayer.training.setup import Setup

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")

FAST: dict[str, Any] = {"recipe": "plain", "quiet": True, "threads": 1}


class Kept:
    """A run with a report, and its prepared training data."""

    run: Run
    prepared: TrainingData

    def fit(self, *args: Any, **options: Any) -> Run:
        def keep(run: Run, setup: Setup, *rest: Any, **how: Any) -> None:
            self.run, self.prepared = run, setup.prepared
            write_report(run, setup, *rest, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("multilayer.training.fit.write_report", keep)
            return ml.fit(*args, **options)

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return targets and raw outputs of the held-out rows, from the model in memory."""
        prepared, model = self.prepared, self.run.model
        assert model is not None
        rows = prepared.validation
        from multilayer.data import Encoded

        codes = None if prepared.data.codes is None else prepared.data.codes[rows]
        z = model.forward(Encoded(x=prepared.data.x[rows], codes=codes, y=None, rows=rows, notes=()))
        return prepared.data.y[rows], z.astype(np.float64)


def figures(found: dict[str, Any]) -> dict[str, float]:
    return {one["name"]: one["value"] for one in found["evaluation"]["metrics"]}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Kept]:
    kept, path = Kept(), tmp_path_factory.mktemp("digits") / "run"
    kept.fit(None, "digits", epochs=4, run=path, **FAST)
    return path, kept


def numbers(n: int = 400, seed: int = 0) -> dict[str, Any]:
    """Return columns of every type, with missing values."""
    g = np.random.default_rng(seed)
    a, b, kind = g.normal(size=n), g.normal(size=n), g.choice(["red", "green", "blue"], n)
    day = (np.datetime64("2020-01-01") + g.integers(0, 900, n)).tolist()
    return {
        "a": [None if g.random() < 0.1 else float(v) for v in a],
        "b": (100 * b + 7).tolist(),
        "kind": kind.tolist(),
        "day": day,
        "same": [1.0] * n,
        "y": (3 * a + (kind == "red") * 2 + 0.3 * g.normal(size=n)).tolist(),
    }


# Numbers


def test_metrics_of_classification_agree_with_scikit_learn(digits: tuple[Path, Kept]) -> None:
    path, kept = digits
    found = report(path)
    y, z = kept.held_out()
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    given, shown = p.argmax(1), figures(found)
    assert shown["accuracy"] == pytest.approx(sk.accuracy_score(y, given), abs=1e-12)
    assert shown["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(y, given), abs=1e-12)
    assert shown["log_loss"] == pytest.approx(sk.log_loss(y, p), rel=1e-4)  # both outputs are float32
    assert shown["f1"] == pytest.approx(sk.f1_score(y, given, average="macro"), abs=1e-12)
    assert shown["auc"] == pytest.approx(sk.roc_auc_score(y, p, multi_class="ovr"), abs=1e-6)
    assert found["evaluation"]["confusion"]["counts"] == sk.confusion_matrix(y, given).tolist()
    for curve in found["evaluation"]["curves"]["curves"]:
        yes = y == int(curve["label"])
        assert curve["auc"] == pytest.approx(sk.roc_auc_score(yes, p[:, int(curve["label"])]), abs=1e-6)
        assert curve["ap"] == pytest.approx(sk.average_precision_score(yes, p[:, int(curve["label"])]), abs=1e-6)
        assert curve["roc"][0] == [0, 0]
        assert curve["roc"][-1] == [1, 1]
    for name, value in kept.run.metrics.items():
        assert shown[name] == pytest.approx(value, rel=1e-4)


def test_the_worst_rows_are_those_with_the_largest_loss(digits: tuple[Path, Kept]) -> None:
    path, kept = digits
    y, z = kept.held_out()
    losses = -(z - np.log(np.exp(z).sum(1, keepdims=True)))[np.arange(len(y)), y]
    prepared = kept.prepared
    rows = prepared.origin[prepared.validation[np.argsort(-losses)[:5]]] + 1
    worst = report(path)["evaluation"]["worst"]
    assert [row["row"] for row in worst["rows"][:5]] == rows.tolist()
    from sklearn.datasets import load_digits

    assert worst["image"] == [8, 8, 1]
    assert worst["rows"][0]["pixels"] == load_digits().data[rows[0] - 1].tolist()


def test_calibration_of_a_binary_task_agrees_with_scikit_learn(tmp_path: Path) -> None:
    kept = Kept()
    kept.fit(None, "breast_cancer", epochs=3, run=tmp_path / "run", **FAST)
    found = report(tmp_path / "run")["evaluation"]
    y, z = kept.held_out()
    p = 1 / (1 + np.exp(-z[:, 0]))
    outcome, given = calibration_curve(y[:, 0], p, n_bins=10)
    assert [bin["came"] for bin in found["calibration"]["bins"]] == pytest.approx(outcome.tolist(), abs=1e-9)
    assert [bin["given"] for bin in found["calibration"]["bins"]] == pytest.approx(given.tolist(), abs=1e-5)
    sizes = np.array([bin["rows"] for bin in found["calibration"]["bins"]])
    assert found["calibration"]["ece"] == pytest.approx(
        float((sizes * abs(outcome - given)).sum() / sizes.sum()), abs=1e-5
    )
    (curve,) = found["curves"]["curves"]
    assert curve["auc"] == pytest.approx(sk.roc_auc_score(y[:, 0], p), abs=1e-6)


def test_metrics_of_regression_agree_with_scikit_learn(tmp_path: Path) -> None:
    kept = Kept()
    run = kept.fit(None, numbers(), target="y", epochs=15, run=tmp_path / "run", **FAST)
    found = report(tmp_path / "run")
    y, z = kept.held_out()
    assert run.model is not None
    task = run.model.encoding.task
    truth, given = y[:, 0] * task.std[0] + task.mean[0], z[:, 0] * task.std[0] + task.mean[0]
    shown = figures(found)
    assert shown["rmse"] == pytest.approx(sk.root_mean_squared_error(truth, given), rel=1e-5)
    assert shown["mae"] == pytest.approx(sk.mean_absolute_error(truth, given), rel=1e-5)
    assert shown["r2"] == pytest.approx(sk.r2_score(truth, given), rel=1e-5)
    (residual,) = found["evaluation"]["residuals"]
    assert np.array(residual["points"]) == pytest.approx(np.stack([truth, given], 1), rel=1e-4, abs=1e-4)
    assert sum(residual["histogram"]["counts"]) == len(truth)
    names = [one["name"] for one in found["evaluation"]["importance"]["columns"]]
    assert set(names) == {"a", "b", "kind", "day"}
    assert set(names[:2]) == {"a", "kind"}
    columns = {one["name"]: one for one in found["evaluation"]["data"]["shown"]}
    assert columns["same"]["kind"] == "drop"
    assert columns["a"]["missing"] == sum(v is None for v in numbers()["a"])
    assert columns["kind"]["distinct"] == 3
    assert columns["day"]["range"][0].startswith("2020-01-")
    worst = found["evaluation"]["worst"]["rows"][0]
    source = numbers()
    place = found["evaluation"]["worst"]["columns"].index("kind")
    assert worst["values"][place] == source["kind"][worst["row"] - 1]
    assert float(worst["truth"]) == pytest.approx(source["y"][worst["row"] - 1], rel=1e-4)
    guess = next(one for one in found["evaluation"]["metrics"] if one["name"] == "rmse")["baseline"]
    train = kept.prepared.train
    assert guess == pytest.approx(np.sqrt(np.mean((truth - np.array(source["y"])[train].mean()) ** 2)), rel=1e-4)


def test_confusion_and_areas_of_labels_agree_with_scikit_learn(tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    X = g.normal(size=(300, 4))
    Y = (X[:, :3] + 0.3 * g.normal(size=(300, 3)) > 0).astype(int)
    kept = Kept()
    kept.fit(None, (X, Y), epochs=5, run=tmp_path / "run", **FAST)
    found = report(tmp_path / "run")["evaluation"]
    y, z = kept.held_out()
    for i, one in enumerate(found["labels"]):
        (no, alarms), (misses, hits) = sk.confusion_matrix(y[:, i], z[:, i] > 0).tolist()
        assert [one[k] for k in ("hits", "misses", "false_alarms", "rejections")] == [hits, misses, alarms, no]
    areas = {curve["label"]: curve["auc"] for curve in found["curves"]["curves"]}
    assert areas == pytest.approx({f"y{i}": sk.roc_auc_score(y[:, i], z[:, i]) for i in range(3)}, abs=1e-6)


def test_the_coverage_is_the_share_of_rows_below_each_quantile(tmp_path: Path) -> None:
    kept = Kept()
    kept.fit(None, "diabetes", epochs=5, loss="quantile(0.1, 0.9)", run=tmp_path / "run", **FAST)
    found = report(tmp_path / "run")["evaluation"]
    y, z = kept.held_out()
    assert [one["share"] for one in found["coverage"]] == pytest.approx((y <= z).mean(0).tolist())


def test_rows_are_evaluated_by_members_that_were_not_trained_on_them(tmp_path: Path) -> None:
    from multilayer.training.recipe import Recipe

    run = ml.fit(Recipe(), numbers(160), target="y", epochs=2, run=tmp_path / "run", **FAST)
    found = report(tmp_path / "run")
    assert found["members"] > 1
    assert found["evaluation"]["in_turn"]
    assert found["evaluation"]["rows"] == 128  # four members hold out a fifth each
    for name, value in run.metrics.items():
        assert figures(found)[name] == pytest.approx(value, rel=1e-4)
    assert "by the members that did not train on it" in found["verdict"]["sentences"][0]["text"]


def test_exact_intervals_agree_with_scipy() -> None:
    from scipy.stats import binomtest

    for n in (1, 2, 7, 50, 359, 4000):
        for k in sorted({0, 1, n // 3, n // 2, n - 1, n}):
            expected = binomtest(k, n).proportion_ci(0.95, method="exact")
            assert quality.exact_interval(k, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_bootstrap_intervals_have_their_nominal_coverage() -> None:
    """About 95 % of the intervals of 200 samples contain the true error. Each sample has 60 rows."""
    g, inside = np.random.default_rng(0), 0
    for _ in range(200):
        error = g.normal(size=(60, 1))
        low, high, how = quality._intervals(_Errors(error), ("mae",))["mae"]  # pyright: ignore
        inside += low <= np.sqrt(2 / np.pi) <= high
        assert how == "bootstrap of 400"
    assert 180 <= inside <= 198  # 190 expected, sd 3; those of few rows are slightly too narrow


def test_intervals_of_many_rows_are_scaled_from_a_selection() -> None:
    """The bootstrap uses 20,000 of 80,000 rows. The interval has the width of one for 80,000 rows."""
    error = np.random.default_rng(0).normal(size=(80_000, 1))
    low, high, _ = quality._intervals(_Errors(error), ("mae",))["mae"]  # pyright: ignore
    value, expected = np.abs(error).mean(), 2 * 1.96 * np.abs(error).std() / np.sqrt(len(error))
    assert low < value < high
    assert high - low == pytest.approx(expected, rel=0.3)  # the ends of an interval from 100 draws vary by about 15 %


class _Errors:
    """A sample with the attributes that intervals use."""

    weight = None

    def __init__(self, error: np.ndarray) -> None:
        self.sides, self.weights = (error, np.zeros_like(error)), np.ones(len(error))

    def __len__(self) -> int:
        return len(self.weights)


def test_the_numbers_and_codes_of_each_column() -> None:
    from support.training_rows import prepare

    ready = prepare(numbers(), target="y")
    found = {name: (numeric, code) for name, numeric, code in places(ready.encoding)}
    names = ready.encoding.numeric_names
    assert [names[i] for i in found["a"][0]] == ["a", "a (missing)"]
    assert len(found["day"][0]) == 5
    assert found["kind"] == ([], 0)
    assert "same" not in found


# The run


def test_a_report_that_is_made_again_is_identical_and_needs_no_data(digits: tuple[Path, Kept]) -> None:
    path, _ = digits
    first = (path / "report.html").read_bytes()
    done = CliRunner().invoke(app, ["report", str(path)])
    assert done.exit_code == 0, done.output
    assert (path / "report.html").read_bytes() == first
    assert json.loads((path / "report.json").read_text())["format"] == "multilayer-report"


def test_a_model_can_be_evaluated_on_other_rows(digits: tuple[Path, Kept], tmp_path: Path) -> None:
    path, _ = digits
    out = tmp_path / "all.html"
    done = CliRunner().invoke(app, ["report", str(path), "--data", "digits", "--out", str(out)])
    assert done.exit_code == 0, done.output
    found = report(path, data="digits")["evaluation"]
    assert (found["rows"], found["origin"]) == (1797, "given")
    assert figures({"evaluation": found})["accuracy"] == pytest.approx(ml.load(path).evaluate("digits")["accuracy"])


def test_one_page_compares_several_runs(digits: tuple[Path, Kept], tmp_path: Path) -> None:
    path, _ = digits
    out = tmp_path / "two.html"
    assert CliRunner().invoke(app, ["report", str(path), str(path), "--out", str(out)]).exit_code == 0
    state = json.loads(out.read_text().split('id="state">')[1].split("</script>")[0])
    assert len(state["runs"]) == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere"], "there is no run at nowhere"),
        (["RUN", "RUN"], "--out FILE.html"),
        (["RUN", "--data", "digits"], "--out FILE.html"),
        (["RUN", "--out", "page.txt"], "--out must end in .html, got page.txt"),
        (["RUN", "--data", "nothing.csv", "--out", "x.html"], "nothing.csv"),
        (["RUN", "--data", "iris", "--out", "x.html"], "columns of training missing"),
        (["RUN", "--out", "nowhere/x.html"], "cannot write"),
        (["RUN"] * 13 + ["--out", "x.html"], "a report takes at most 12 runs, got 13"),
    ],
)
def test_bad_input_is_a_clear_error(
    digits: tuple[Path, Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["report", *(str(digits[0]) if a == "RUN" else a for a in args)])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert "Traceback" not in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"format":"x"}',
        '{"format":"multilayer-report","version":99}',
        '{"format":"multilayer-report","version":1}',
        '{"format":"multilayer-report","version":1,"metrics":7,"metric":[]}',
    ],
)
def test_a_damaged_evaluation_is_an_error(digits: tuple[Path, Kept], tmp_path: Path, text: str) -> None:
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(digits[0], copy)
    (copy / "report.json").write_text(text)
    with pytest.raises(MultilayerError, match=r"report\.json"):
        report(copy)


def test_a_report_that_cannot_be_written_is_only_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multilayer.pages.report.report.of_run", lambda *_, **__: 1 / 0)
    with pytest.warns(UserWarning, match="the run is complete, but its report could not be written"):
        run = ml.fit(None, "iris", epochs=2, run=tmp_path / "run", **FAST)
    assert run.model is not None
    assert ml.load(tmp_path / "run").evaluate("iris")["accuracy"] > 0
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["train", "iris", "--epochs", "2", "-q", "--arch", "4-8-3", "--run", "cli"])
    assert done.exit_code == 0
    assert "warning: the run is complete" in done.stderr
    assert (tmp_path / "cli" / "model.safetensors").exists()
    assert "report:" not in done.stdout


def test_ctrl_c_during_the_report_keeps_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("multilayer.pages.report.report.of_run", interrupted)
    with pytest.warns(UserWarning, match="has no report: KeyboardInterrupt; mlp report .* makes it"):
        assert ml.fit(None, "iris", epochs=2, run=tmp_path / "run", **FAST).model is not None


def test_a_report_without_held_out_rows_has_a_warning(tmp_path: Path) -> None:
    ml.fit(None, "iris", epochs=2, validation=None, run=tmp_path / "run", **FAST)
    found = report(tmp_path / "run")
    assert found["evaluation"]["origin"] == "trained on"
    assert any("No rows were held out" in one["text"] for one in found["verdict"]["sentences"])


def test_a_notebook_shows_a_table_for_a_run_in_memory_and_the_report_for_a_run_folder(tmp_path: Path) -> None:
    table = ml.fit(None, "iris", epochs=1, **FAST)._repr_html_()
    assert table.startswith("<table><tr><th>run</th><td>in memory</td>")
    assert "<th>accuracy</th>" in table
    run = ml.fit(None, "iris", epochs=1, run=tmp_path / "run", **FAST)
    shown = run._repr_html_()
    assert shown is not None
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html')
    assert 'sandbox="allow-scripts"' in shown
    assert shown.count("<") == 2


def test_a_killed_run_has_a_report_of_its_training(tmp_path: Path) -> None:
    """Only the log exists. The report shows the training so far."""
    ml.fit(None, "iris", epochs=3, run=tmp_path / "run", **FAST)
    for name in ("report.json", "report.html", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    log = tmp_path / "run" / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]) + '{"event": "torn')
    found = report(tmp_path / "run")
    assert (found["run"]["status"], found["evaluation"]) == ("running", None)
    assert "has not ended" in found["verdict"]["sentences"][0]["text"]


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({"patience": 1, "epochs": 60, "learning_rate": 0.05}, {"best", "stopped"}),
        ({"optimizer": "sgd", "learning_rate": 1e30, "schedule": "constant"}, {"not finite"}),
    ],
)
def test_special_events_are_marked(tmp_path: Path, options: dict[str, Any], kinds: set[str]) -> None:
    ml.fit(None, "diabetes", run=tmp_path / "run", **FAST | options)
    found = report(tmp_path / "run")
    assert kinds <= {mark["kind"] for mark in found["curves"]["marks"]}
    if "not finite" in kinds:
        assert [one["kind"] for one in found["findings"]] == ["rate_too_high"]
        assert "Training diverged" in found["findings"][0]["message"]


@pytest.mark.parametrize("schedule", ["coslog(cycles=4)", "one_cycle", "cosine(warmup=0.05)", "constant"])
def test_the_report_has_the_learning_rate_of_every_step(tmp_path: Path, schedule: str) -> None:
    ml.fit("10-4-1", "diabetes", run=tmp_path / "run", **FAST | {"epochs": 12, "schedule": schedule})
    log = RunFolder.open(tmp_path / "run").events()
    shown = dict(report(tmp_path / "run")["curves"]["rates"])
    logged = {event.step: event.learning_rate for event in log if isinstance(event, events.Progress)}
    assert len(logged) > 3
    for step, rate in logged.items():
        assert shown[step] == pytest.approx(rate, rel=1e-12)
    assert len(shown) == max(shown) == log[-1].step


def test_the_learning_rate_after_a_rollback_has_the_new_factor() -> None:
    start = events.Start(
        step=0,
        network="",
        parameters=1,
        rows=1,
        engine="",
        seed=0,
        versions={},
        config={"schedule": "constant", "learning_rate": 0.2, "epochs": 3},
    )
    epochs = [events.EpochEnd(step=s, epoch=s // 4, loss=1, seconds=1, rows_per_second=1, metrics={}) for s in (4, 8)]
    back = events.RolledBack(step=5, to_step=5, rate_factor=0.5, reason="")
    found = history([start, epochs[0], back, epochs[1]])
    assert [rate for _, rate in found["rates"]] == [0.2] * 5 + [0.1] * 3


def test_gradient_norms_are_by_epoch_for_short_runs_and_by_step_for_long_runs() -> None:
    def epoch(step: int, norm: float | None) -> events.EpochEnd:
        return events.EpochEnd(
            step=step, epoch=step // 4, loss=1, seconds=1, rows_per_second=1, gradient_norm=norm, metrics={}
        )

    steps = [events.Progress(step=s, epoch=1, loss=1, gradient_norm=s / 2, learning_rate=0.1) for s in (1, 2, 3, 4)]
    assert history([epoch(4, 3.0), epoch(8, 2.0)])["norms"] == [[4, 3.0], [8, 2.0]]
    assert history([*steps, epoch(4, 3.0)])["norms"] == [[1, 0.5], [2, 1.0], [3, 1.5], [4, 2.0]]
    assert history([epoch(4, None), epoch(8, None)])["norms"] == []  # a log of an older version


def test_the_code_of_a_report_repeats_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python code in the report gives a bit-identical model."""
    monkeypatch.chdir(tmp_path)
    ml.fit(None, "iris", epochs=3, batch_size=8, learning_rate=0.01, run=tmp_path / "run", **FAST)
    code = report(tmp_path / "run")["again"]["python"]
    space: dict[str, Any] = {}
    exec(code, space)
    assert space["run"].model.to_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()
    command = report(tmp_path / "run")["again"]["command"]
    assert command.startswith("mlp train iris --arch ")
    assert "--batch-size 8" in command


def test_the_code_has_categorical_and_constant_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("zip,y\n" + "10115,a\n80331,b\n" * 40)
    ml.fit(None, "t.csv", target="y", categorical=["zip"], epochs=1, run="named", **FAST)
    again = report(Path("named"))["again"]
    assert "--categorical zip" in again["command"]
    assert "categorical=['zip']" in again["python"]
    Path("same.csv").write_text("zip,y\n" + "1,a\n1,b\n" * 40)
    ml.fit(None, "same.csv", target="y", keep_constant=True, quiet=True, run="same")  # otherwise the defaults
    again = report(Path("same"))["again"]
    assert again["command"] is None
    assert "keep_constant=True" in again["python"]


def test_the_command_opens_a_live_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url))
    done = CliRunner().invoke(app, ["train", "iris", "--live", "-q", "--arch", "4-3", "--epochs", "2", "--run", "r"])
    assert done.exit_code == 0, done.output
    assert f"live: {opened[0]}" in done.stderr
    missing = CliRunner().invoke(app, ["train", "nothing.csv", "--live"])
    assert missing.exit_code == 2
    assert len(opened) == 1
