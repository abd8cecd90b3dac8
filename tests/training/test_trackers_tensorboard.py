"""TensorBoard reads what the tracker writes. The other trackers are tested by `make interop`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from multilayer.runs.events import Resume
from multilayer.training.trackers import TrackerObserver, adapt, get, replay
from multilayer.training.trackers.tools import TensorBoard
from support.tracked_runs import RUN, START, end, epoch, feed


def scalars(folder: Path) -> dict[str, list[tuple[float, int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0, "histograms": 0})
    read.Reload()
    return {tag: [(e.wall_time, e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def texts(folder: Path) -> dict[str, str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    read.Reload()
    return {tag: read.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in read.Tags()["tensors"]}


def test_tensorboard_reads_back(tmp_path: Path) -> None:
    replay(RUN, get("tensorboard", folder=tmp_path))
    read = scalars(tmp_path)
    assert read["train/loss"] == [(1000.0, 10, pytest.approx(0.4)), (1001.0, 20, pytest.approx(0.4))]
    assert [(step, math.isnan(value)) for _, step, value in read["validation/loss"]] == [(10, False), (20, True)]
    assert math.isinf(read["train/gradient_norm"][0][2])
    assert read["final/accuracy"][0][1:] == (20, pytest.approx(0.95))
    found = texts(tmp_path)
    assert '"optimizer": "adam"' in found["config/text_summary"]
    assert "raise the rate" in found["alerts/notice/text_summary"]
    assert "train/gradient_norm is inf" in found["alerts/not finite/text_summary"]


def test_tensorboard_hides_events_that_a_resume_discarded(tmp_path: Path) -> None:
    killed = TrackerObserver(get("tensorboard", folder=tmp_path), warn=pytest.fail)
    for event in (START, epoch(0), epoch(1, accuracy=0.1)):
        killed.notice(event)
    killed.close()
    feed(
        get("tensorboard", folder=tmp_path),
        [Resume(step=10, checkpoint="c", kept=2, notes=[]), epoch(1, accuracy=0.8), end()],
    )
    read = [(step, round(value, 6)) for _, step, value in scalars(tmp_path)["validation/accuracy"]]
    assert read == [(10, 0.9), (20, 0.8)]


def test_a_users_writer_stays_open(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    tracker = adapt(writer)
    assert isinstance(tracker, TensorBoard)
    feed(tracker, RUN)
    tracker.histogram("linear1/weight", np.array([1.0, math.nan, 2.0]), 20)
    tracker.histogram("linear1/none", np.array([math.nan]), 20)
    assert scalars(tmp_path)["train/loss"][0][1] == 10
    writer.add_scalar("mine", 1.0, 1)
    writer.close()
    assert scalars(tmp_path)["mine"][0][2] == 1.0


def test_a_writer_with_only_add_scalar_is_accepted() -> None:
    class Writer:
        def __init__(self) -> None:
            self.seen: list[tuple[str, float, int]] = []

        def add_scalar(self, tag: str, data: float, step: int, *, wall_time: float | None = None) -> None:
            self.seen.append((tag, data, step))

    writer = Writer()
    feed(adapt(writer), RUN)
    assert ("validation/accuracy", 0.9, 10) in writer.seen
