"""The answers of `mlp cost`: budgets, sweeps, inverse questions, other tools, and checks against PyTorch."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from multilayer.cli import cost_answers, cost_questions
from multilayer.cli.output import console, show
from multilayer.costs import cost
from multilayer.costs.roofline import Prediction
from multilayer.costs.torch_speed import MeasuredRow, Measurement
from multilayer.spec import Spec
from support.cost_command import NET, data, printed, run

# Budget


def test_cost_within_the_budget() -> None:
    text = printed(NET, "--budget", "flops=1e9,memory=100MB,parameters=1M")
    assert re.findall(r"^ok +(\w+)", text, re.MULTILINE) == ["flops", "memory", "parameters"]
    assert [item["ok"] for item in data(NET, "--budget", "flops=1e9,memory=100MB")["budget"]] == [True, True]


def test_budget_exceeded_names_each_item_and_by_how_much() -> None:
    result = run("cost", NET, "--budget", "flops=1e6,memory=1GB,parameters=200k", code=1)
    message = " ".join(result.stderr.split())
    assert message.startswith(
        "error: over budget: flops is 32,291,648: 32.29 times the limit of 1,000,000, 31,291,648 over"
    )
    assert "parameters is 235,146: 1.18 times the limit of 200,000, 35,146 over" in message
    assert "memory" not in message
    assert "over  flops" in result.stdout


def test_a_memory_budget_notes_a_step_that_exceeds_it_with_temporary_memory() -> None:
    found = cost("20-64-64-2", batch=64).memory
    limit = found.total + found.temporary - 1
    (item,) = data("20-64-64-2", "--batch", "64", "--budget", f"memory={limit}B")["budget"]
    assert (item["ok"], item["with_temporary"]) == (True, limit + 1)
    assert "memory with temporary memory" in printed("20-64-64-2", "--batch", "64", "--budget", f"memory={limit}B")
    assert (
        "temporary memory"
        not in printed("20-64-64-2", "--batch", "64", "--budget", f"memory={limit + 1}B").partition("Budget")[2]
    )


def test_cost_equal_to_the_budget() -> None:
    item = {"name": "parameters", "cost": 235_146, "limit": 235_146, "ok": True}
    assert data(NET, "--budget", "parameters=235146")["budget"] == [item]
    over = run("cost", NET, "--budget", "parameters=235145", code=1).stderr
    assert "parameters is 235,146: 1.00 times the limit of 235,145, 1 over" in " ".join(over.split())


# Sweeps


def test_sweep_of_the_batch() -> None:
    rows = data(NET, "--sweep", "batch=1..4096")["sweep"]
    assert [row["batch"] for row in rows] == [2**i for i in range(13)]
    assert [row["step"] for row in rows] == [cost(NET, batch=2**i).step for i in range(13)]
    assert rows[0]["memory"] == cost(NET, batch=1).memory.total
    text = printed(NET, "--sweep", "batch=3..20")
    assert [line.split()[0] for line in text.splitlines()[5:]] == ["3", "4", "8", "16", "20"]
    table = list(csv.DictReader(io.StringIO(printed(NET, "--sweep", "batch=1..4", "--csv"))))
    assert [int(row["step"]) for row in table] == [cost(NET, batch=b).step for b in (1, 2, 4)]


def test_sweep_of_the_width() -> None:
    rows = data(NET, "--sweep", "width=64..256")["sweep"]
    assert [row["width"] for row in rows] == [64, 128, 256]
    assert [row["parameters"] for row in rows] == [
        Spec.parse(t).n_parameters for t in ("784-64-32-10", "784-128-64-10", NET)
    ]


@pytest.mark.parametrize(("name", "start"), [("sweep.svg", b"<?xml"), ("sweep.png", b"\x89PNG")])
def test_a_plot_of_a_sweep_is_saved(tmp_path: Path, name: str, start: bytes) -> None:
    path = tmp_path / name
    printed(NET, "--sweep", "batch=1..64", "--plot", str(path))
    assert path.read_bytes().startswith(start)
    if name.endswith("svg"):
        text = path.read_text(encoding="utf-8")
        assert all(word in text for word in ("rows in a batch", "FLOPs of a step", "Memory", "activations", NET))
        assert re.search("[0-9] MiB", text)
        assert not re.search("[0-9] [kM]B", text)


def test_an_unknown_kind_of_plot_is_an_error_before_the_sweep(tmp_path: Path) -> None:
    result = run("cost", NET, "--sweep", "batch=1..4", "--plot", str(tmp_path / "a.txt"), code=2)
    assert "must end in .svg, .png" in result.stderr
    assert list(tmp_path.iterdir()) == []


# Inverse questions


def test_largest_batch_is_answered() -> None:
    found = data(NET, "--memory", "2GB")["largest_batch"]
    batch = found["batch"]
    assert cost(NET, batch=batch).memory.total <= 2 * 10**9 < cost(NET, batch=batch + 1).memory.total
    assert found["with_temporary"] < batch
    text = printed(NET, "--memory", "2GB")
    assert f"{batch:,}" in text
    assert "Forward" not in text
    assert "none: a batch of one row takes" in printed(NET, "--memory", "1kB")
    assert "because this network stores nothing per row" in " ".join(printed("4-relu", "--memory", "1kB").split())
    everything = " ".join(printed(NET, "--memory", "1e99").split())
    assert "1,099,511,627,776 rows take" in everything
    assert "and fit into the limit; larger batches were not tried" in everything
    assert "stores nothing" not in everything


def test_widest_and_deepest_are_answered() -> None:
    found = data(NET, "--parameters", "1e6")
    assert found["widest"]["network"] == "784-829-415-10"
    assert found["widest"]["parameters"] == 999_375
    assert found["deepest"]["copies"] == 47
    assert Spec.parse(found["deepest"]["network"]).n_parameters == found["deepest"]["parameters"] <= 10**6
    text = printed(NET, "--flops", "1e9")
    assert "Widest within 1.00 GFLOP per step" in text
    assert "linear2 occurs" in text
    none = data(NET, "--flops", "10")
    assert none["widest"] is none["deepest"] is None
    assert "none: even 784-1-1-10 takes" in printed(NET, "--flops", "10")


def test_time_is_answered() -> None:
    found = data("8-16-2", "--epochs", "3", "--rows", "100", "--batch", "32")["time"]
    assert found["steps"] == 12
    assert found["seconds"] > 0
    assert "12 steps of" in printed("8-16-2", "--epochs", "3", "--rows", "100")


def test_a_huge_limit_does_not_build_huge_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    real = cost_questions.cost

    def counting(spec: Spec, **options: object):
        counted.append(len(spec.entries))
        return real(spec, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(cost_questions, "cost", counting)
    for limit in ("--flops", "--parameters"):
        text = " ".join(printed("4-4-1", limit, "1e99").split())
        assert "4-4*49999-1 999,985 parameters, 185,596,192 FLOPs per step" in text
        assert "same inputs and outputs; wider networks were not tried" in text
    assert max(counted) < 10


def test_differences_have_a_minus_sign() -> None:
    assert "−12,288 σ′" in re.sub(" +", " ", printed(NET))
    assert "-12,288" not in printed(NET)


# Other tools, and checks against PyTorch


@pytest.mark.parametrize("tool", ["torchinfo", "fvcore", "thop", "flopcounter"])
def test_what_a_tool_would_report(tool: str) -> None:
    found = data("10-11", "--as", tool, "--batch", "1")["as"]
    assert found["tool"] == tool
    assert found["lines"]
    text = printed("10-11", "--as", tool, "--batch", "1")
    assert f"What {tool}" in text
    assert all(f"{line['figure']:,}" in text for line in found["lines"])


def test_a_number_that_cannot_be_predicted_is_unknown() -> None:
    found = data("10-kan(4)-2", "--as", "fvcore")["as"]
    assert any(line["figure"] is None for line in found["lines"])
    assert "unknown" in printed("10-kan(4)-2", "--as", "fvcore")


def test_verify_prints_both_counts() -> None:
    text = printed("4-8-3", "--verify", "--batch", "5")
    assert re.search(r"ok +parameters +67 +67", text)
    assert all(check["ok"] for check in data("4-8-3", "--verify")["verify"])


def test_verify_exits_with_1_on_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    from multilayer.costs import verification

    wrong = verification.Verification(checks=(verification.Check(what="parameters", closed_form=3, counted=4),))
    monkeypatch.setattr(verification, "verify", lambda *_, **__: wrong)
    assert re.search(r"differs +parameters +3 +4", printed("4-8-3", "--verify", code=1))


def measurement() -> Measurement:
    rows = (
        MeasuredRow(name="linear1", what="4→8", predicted=1e-3, measured=2e-3, bound="compute"),
        MeasuredRow(name="residual1", what="8 sum", predicted=1e-6, measured=None, bound="memory"),
    )
    return Measurement(
        rows=rows,
        predicted=1e-3,
        measured=2e-3,
        fused_saving=1.4,
        threads=2,
        machine="a processor",
        prediction=Prediction(rows=(), optimizer=0.0, per_step=0.0, fused_saving=1.4),
    )


def test_the_time_of_epochs_uses_the_measured_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multilayer.costs.torch_speed.measure", lambda spec, **options: measurement())
    found = data("4-8-3", "--epochs", "3", "--rows", "64", "--batch", "32", "--measure")
    assert found["time"]["seconds"] == pytest.approx(6 * found["measure"]["measured"])
    assert not found["time"]["lower_bound"]
    assert "PyTorch, measured now on" in printed("4-8-3", "--epochs", "3", "--rows", "64", "--measure")


def test_measurement_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    answer = cost_answers.measurement(measurement())
    assert answer.data["error"] == pytest.approx(-0.5)
    assert answer.data["rows"][1]["measured"] is None
    show(console(), answer.shown)
    text = capsys.readouterr().out
    assert re.search(r"linear1 +4→8 +1\.00 ms +compute +2\.00 ms", text)
    assert re.search(r"residual1 +8 sum +1\.00 µs +memory$", text, re.MULTILINE)
    assert "error of the prediction: −50.0 %" in text
    assert "layers 1.40 × as fast" in text
