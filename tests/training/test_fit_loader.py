"""A DataLoader as the data of `fit`: supported loaders, notices and errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import multilayer as ml
from multilayer.data.batches import KEPT, Data, LoaderBatches
from multilayer.errors import BatchError, DataError, MultilayerError, OptionError, RunError, SpecError
from multilayer.runs import RunFolder
from multilayer.runs.events import NonFinite, Notice, Resume, Start
from multilayer.training import fit as module

FAST: dict[str, Any] = {"recipe": "plain", "epochs": 4, "quiet": True, "threads": 1}


def numbers(rows: int = 90, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32))
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()


def loader(rows: int = 90, *, seed: int = 0, **how: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*numbers(rows, seed=seed)), **{"batch_size": 16, **how})


def notices(run: Any) -> list[str]:
    return [event.message for event in run.log if isinstance(event, Notice)]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "drop_last": True},
        {"num_workers": 2, "shuffle": True},
        {"batch_size": 90},
        {"batch_size": 1},
        {"collate_fn": lambda items: [torch.stack([x for x, _ in items]).numpy(), [int(y) for _, y in items]]},
    ],
    ids=["plain", "shuffle", "drop_last", "workers", "one batch", "single rows", "collate"],
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # this machine may have one core
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_loaders_of_every_kind_train(how: dict[str, Any]) -> None:
    rows = 30 if how.get("batch_size") == 1 else 90
    epochs = {"epochs": 30, "learning_rate": 0.02} if not how.get("num_workers") else {"epochs": 2}
    run = ml.fit("4-16:tanh-3", loader(rows, **how), validation=numbers(60, seed=1), **FAST | epochs)
    if not how.get("num_workers"):
        assert run.metrics["accuracy"] > 0.7
    start = run.log[0]
    assert isinstance(start, Start)
    assert start.rows == (80 if how.get("drop_last") else rows)
    assert (start.engine, start.config["engine"]) == ("torch", "torch")
    assert start.config["batch_size"] == how.get("batch_size", 16)
    assert run.model is not None
    assert set(run.model.predict(numbers(20, seed=2)[0])) <= {0, 1, 2}
    assert "task: classification of 'y' into 3 classes (inferred; task=… overrides)" in run.notes


def test_without_shuffling_the_result_equals_plain_pytorch() -> None:
    """The batches and their order are the same, and the result is bit-identical."""
    x, y = numbers()
    run = ml.fit(
        "4-5:tanh-3",
        loader(),
        validation=None,
        optimizer="sgd",
        weight_decay=0.0,
        learning_rate=0.1,
        schedule="constant",
        dtype="float64",
        **FAST,
    )
    x = x.double()
    W1, b1, W2, b2 = (torch.tensor(v, requires_grad=True) for v in ml.initialise(ml.Spec.parse("4-5:tanh-3")).values())
    by_hand = torch.optim.SGD([W1, b1, W2, b2], lr=0.1)
    for _ in range(FAST["epochs"]):
        for start in range(0, 90, 16):
            rows = slice(start, start + 16)
            z = torch.tanh(torch.nn.functional.linear(x[rows], W1, b1)) @ W2.T + b2
            by_hand.zero_grad()
            torch.nn.functional.cross_entropy(z, y[rows]).backward()
            by_hand.step()
    assert run.model is not None
    np.testing.assert_allclose(run.model.tensors["linear1.weight"], W1.detach().numpy(), atol=1e-14)


def test_limitations_of_a_loader_are_reported_once_and_recorded(tmp_path: Path) -> None:
    run = ml.fit("4-3", loader(shuffle=True), run=tmp_path / "run", validation=None, **FAST)
    assert len(notices(run)) == 1
    assert "a resumed run or a rollback continues with other batches" in notices(run)[0]
    kept = RunFolder.open(tmp_path / "run").events()
    assert isinstance(kept[1], Notice)
    assert not notices(ml.fit("4-3", numbers(), validation=None, **FAST))


@pytest.mark.parametrize("kind", ["loader", "arrays", "none", "auto"])
def test_validation_is_a_loader_or_arrays_or_none(kind: str) -> None:
    x, y = numbers(60, seed=1)
    given = {"loader": loader(60, seed=1), "arrays": (x.numpy(), y.numpy()), "none": None, "auto": "auto"}[kind]
    run = ml.fit("4-3", loader(), validation=given, **FAST)
    assert ("accuracy" in run.metrics) == (kind in ("loader", "arrays"))
    assert ("60 rows for validation" in run.notes) == (kind in ("loader", "arrays"))
    assert any("no rows held out" in note for note in run.notes) == (kind == "auto")
    if run.metrics:
        assert run.model is not None
        assert run.model.evaluate((x, y))["accuracy"] == pytest.approx(run.metrics["accuracy"])


def test_regression_keeps_its_units_and_binary_its_classes(tmp_path: Path) -> None:
    x, _ = numbers(200)
    price = 5_000 + 100 * x[:, 0]
    made = DataLoader(TensorDataset(x, price), batch_size=32, shuffle=True)
    run = ml.fit("4-1", made, validation=None, **FAST | {"epochs": 40, "learning_rate": 0.02})
    assert run.model is not None
    assert run.model.evaluate((x, price))["r2"] > 0.95
    again = ml.load(run.model.save(tmp_path / "m.safetensors") and tmp_path / "m.safetensors")
    assert 4_500 < again.predict(x).mean() < 5_500
    yes = DataLoader(TensorDataset(x, (x[:, 0] > 0).float()), batch_size=32)
    run = ml.fit(None, yes, validation=None, **FAST)
    assert run.model is not None
    assert run.model.encoding.task.kind == "binary"
    counted = ml.fit("4-1", yes, validation=None, task="regression", **FAST)
    assert counted.model is not None
    assert counted.model.encoding.task.kind == "regression"


def test_images_are_flattened_with_channels_last() -> None:
    x = torch.arange(2 * 3 * 2 * 2, dtype=torch.float32).reshape(2, 3, 2, 2) / 24
    run = ml.fit("12-1", DataLoader(TensorDataset(x, torch.tensor([0, 1])), batch_size=2), validation=None, **FAST)
    assert run.model is not None
    np.testing.assert_array_equal(run.model.outputs(x), run.model.outputs(x.movedim(1, -1).reshape(2, 12)))


def test_large_numbers_cause_a_notice() -> None:
    x, y = numbers()
    run = ml.fit("4-3", DataLoader(TensorDataset(1000 * x, y), batch_size=16), validation=None, **FAST)
    assert any("are not scaled" in note for note in run.notes)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        x, y = numbers(50)
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        return zip(x[first::step], y[first::step], strict=True)


def test_an_iterable_dataset() -> None:
    run = ml.fit("4-3", DataLoader(Stream(), batch_size=8), validation=None, **FAST)
    assert run.log[0].rows == 50  # type: ignore[attr-defined]


class Epochs(torch.utils.data.Sampler[int]):
    def __init__(self) -> None:
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(range(90))

    def __len__(self) -> int:
        return 90


def test_a_sampler_receives_the_epoch() -> None:
    sampler = Epochs()
    ml.fit("4-3", loader(sampler=sampler), validation=None, **FAST)
    assert sampler.epochs == [0, 1, 2, 3]


# Rollbacks, resumed runs and repeated steps


class Poisoned:
    """A loader whose third epoch contains a NaN, as from an error in an augmentation."""

    batch_size, dataset = 16, None

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        for place, (x, y) in enumerate(loader()):
            if self.passes == 4 and place == 2:
                x = x.clone()
                x[5, 1] = torch.nan
            yield x, y


def test_a_bad_value_is_reported_by_its_place_in_the_loader() -> None:
    run = ml.fit("4-8:tanh:dropout(0.1)-3", Poisoned(), validation=None, on_spike="stop", **FAST)
    bad = next(event for event in run.log if isinstance(event, NonFinite))
    assert (bad.where, bad.unit, bad.rows) == ("input", 1, [2 * 16 + 5])
    assert run.end.status == "stopped"


def test_a_rollback_continues_with_other_batches() -> None:
    run = ml.fit("4-8:tanh-3", Poisoned(), validation=None, **FAST)
    assert [event["event"] for event in run.events].count("rollback") == 1
    assert run.end.status == "finished"


def test_repeated_steps_get_the_same_batch() -> None:
    shuffled = LoaderBatches(loader(shuffle=True))
    none: Any = None
    data = Data(x=np.zeros((90, 4)), y=np.zeros(90))
    first = [shuffled(none, data, np.arange(i, i + 16), 0) for i in (0, 16)]
    again = [shuffled(none, data, np.arange(i, i + 16), 0) for i in (0, 16)]
    assert all(a is b for a, b in zip(first, again, strict=True))
    alone = shuffled(none, data, np.array([18]), 0)
    np.testing.assert_array_equal(alone.x, first[1].x[2:3])
    assert shuffled(none, data, np.arange(16), 1) is not first[0]
    assert KEPT > 50  # steps between two lines of progress


def test_the_last_batch_comes_early_after_a_rollback() -> None:
    batches = LoaderBatches(loader())
    data = Data(x=np.zeros((90, 4)), y=np.zeros(90))
    steps = [np.arange(i, i + 16) + 1000 * again for i in range(0, 80, 16) for again in (0, 1)]
    assert [len(batches(None, data, rows, 0).x) for rows in steps] == [16] * 10  # type: ignore[arg-type]
    assert len(batches(None, data, np.arange(80, 90), 0).x) == 10  # type: ignore[arg-type]


def test_a_run_from_a_loader_resumes_only_with_a_loader(tmp_path: Path) -> None:
    x, y = numbers(40, seed=3)
    options = {**FAST, "validation": (x, y), "checkpoint_every": 4}
    ml.fit("4-3", loader(shuffle=True), run=tmp_path / "run", **options)
    folder = RunFolder.open(tmp_path / "run")
    lines = folder.log.read_text().splitlines(keepends=True)
    folder.log.write_text("".join(lines[:-1]))
    folder.model.unlink()
    with pytest.raises(RunError, match=r"from your own loader: pass it again, ml.resume\(path, data=loader"):
        ml.resume(tmp_path / "run", quiet=True)
    with pytest.raises(RunError, match="resume needs one, got tuple"):
        ml.resume(tmp_path / "run", data=numbers(), validation=(x, y), quiet=True)
    with pytest.raises(RunError, match="was validated on data in memory"):
        ml.resume(tmp_path / "run", data=loader(shuffle=True), quiet=True)
    with pytest.raises(RunError, match="the data differs from"):
        ml.resume(tmp_path / "run", data=loader(70), validation=(x, y), quiet=True)
    run = ml.resume(tmp_path / "run", data=loader(shuffle=True), validation=(x, y), quiet=True)
    assert run.end.status == "finished"
    gone_on = [event for event in folder.events() if isinstance(event, Resume)]
    assert "other batches" in gone_on[-1].notes[-1]
    done = subprocess.run(
        [sys.executable, "-m", "multilayer", "resume", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "your own loader" in done.stderr


# What cannot work


def pair(x: Any, y: Any) -> Any:
    return DataLoader(list(zip(x, y, strict=True)), batch_size=4)


@pytest.mark.parametrize(
    ("given", "options", "error", "message"),
    [
        (loader(), {"engine": "numpy"}, OptionError, "a loader needs the torch engine, got engine='numpy'"),
        (loader(), {"validation": 0.2}, OptionError, r"a second loader, \(X, y\) or None, got 0.2: split the dataset"),
        (loader(), {"batch_size": 8}, OptionError, "batches of 16 rows, got batch_size=8"),
        (loader(), {"augment": "noise(0.1)"}, OptionError, "augment is for tables"),
        (loader(), {"class_weight": "balanced"}, OptionError, "class_weight is for tables"),
        (loader(), {"epoch_rows": 8}, OptionError, "epoch_rows is for tables, got epoch_rows=8"),
        (loader(), {"target": "y"}, OptionError, "target is for tables, got target='y'"),
        (loader(), {"group": "y"}, OptionError, "group is for tables"),
        (loader(), {"categorical": ["y"]}, OptionError, r"categorical is for tables, got categorical=\['y'\]"),
        (loader(), {"loss": "mse", "task": "multilabel"}, DataError, "multilabel task needs two classes"),
        (
            loader(),
            {"validation": DataLoader([(torch.zeros(3), 1)])},
            DataError,
            "4 numbers per row as in training, got 3",
        ),
        (loader(), {"validation": pair(torch.zeros(4, 4), [0, 1, 2, 7])}, DataError, "must be one of .* got 7"),
        (loader(), {"spec": "5-3"}, SpecError, "the data has 4 numbers"),
        (loader(collate_fn=lambda items: {"x": items}), {}, OptionError, "got dict: change its collate_fn"),
        (loader(collate_fn=lambda items: ["a", "b"]), {}, OptionError, "must give numbers, got <U1"),
        (loader(batch_size=None), {}, OptionError, r"the same number of rows, got shapes \(4,\) and \(\)"),
        (pair(torch.full((4, 2), torch.nan), [0, 1, 0, 1]), {}, DataError, "row 1, column 0: must be finite, got nan"),
        (DataLoader([], batch_size=2), {}, OptionError, "at least one batch, got none"),
        (
            DataLoader(TensorDataset(*numbers(20)), batch_sampler=[[0, 1], [2, 3, 4], [5]]),
            {},
            DataError,
            "got 3 rows in batch 2 of 3 after 2",
        ),
        (
            DataLoader(TensorDataset(torch.zeros(4, 2), torch.zeros(4, 1).long(), torch.zeros(4)), batch_size=2),
            {},
            DataError,
            r"a loader must give \(x, y\): for categories pass its dataset",
        ),
    ],
)
def test_invalid_loaders_and_options_are_one_clear_error(
    given: Any, options: dict[str, Any], error: type, message: str
) -> None:
    chosen: dict[str, Any] = {"spec": "4-3", "validation": None, **FAST, **options}
    with pytest.raises(error, match=message):
        ml.fit(chosen.pop("spec"), given, **chosen)


def test_a_loader_that_changes_its_batches_causes_a_notice() -> None:
    class Shrinking:
        batch_size, dataset = 16, None
        passes = 0

        def __iter__(self) -> Iterator[Any]:
            self.passes += 1
            return iter(loader(batch_size=16 if self.passes == 1 else 5))

    with pytest.raises(BatchError, match="gave a batch of 5 rows, expected 16"):
        ml.fit("4-3", Shrinking(), validation=None, **FAST)


def test_predicting_on_a_loader_points_to_its_dataset() -> None:
    run = ml.fit("4-3", loader(), validation=None, **FAST)
    assert run.model is not None
    with pytest.raises(MultilayerError, match=r"give its dataset, loader\.dataset"):
        run.model.predict(loader())
    run.model.predict(loader().dataset)


# Separate validation data, also for tables


def test_a_table_may_have_validation_arrays(tmp_path: Path) -> None:
    x, y = (part.numpy() for part in numbers())
    held_out = tuple(part.numpy() for part in numbers(40, seed=5))
    run = module.fit("4-3", (x, y), validation=held_out, run=tmp_path / "run", engine="numpy", epochs=2, quiet=True)
    assert run.model is not None
    assert run.metrics["accuracy"] == pytest.approx(run.model.evaluate(held_out)["accuracy"])
    log = tmp_path / "run" / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))  # as if killed before the end
    with pytest.raises(RunError, match="validated on data in memory: pass it again"):
        module.resume(tmp_path / "run", data=(x, y), quiet=True)
    again = module.resume(tmp_path / "run", data=(x, y), validation=held_out, quiet=True)
    assert again.metrics == run.metrics
