"""Training of the laboratory: the same steps as a plain loop, and what it stores."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.lab.training import Network, Task, Training, train

X = np.linspace(-1, 1, 24)[:, None]
TASK = Task(x=X, y=X**2)


def test_full_batches_of_sgd_are_steps_along_the_gradient() -> None:
    options = Training(steps=5, optimizer="sgd", learning_rate=0.1, dtype="float64", seed=3, at=(0, 2))
    trained = train("1-4:tanh-1", TASK, options)
    network = trained.stored[0]
    for step in range(5):
        assert trained.losses[step] == pytest.approx(network.loss(TASK), rel=1e-12)
        found = {
            f"{layer}.{name}": value
            for layer, one in network.gradients(TASK).items()
            for name, value in one.parameters.items()
        }
        norm = np.sqrt(sum((value**2).sum() for value in found.values()))
        assert trained.gradient_norms[step] == pytest.approx(norm, rel=1e-9)
        network = Network(network.spec, {name: value - 0.1 * found[name] for name, value in network.tensors.items()})
        if step == 1:
            for name, value in trained.stored[2].tensors.items():
                np.testing.assert_allclose(value, network.tensors[name], rtol=1e-10)
    for name, value in trained.network.tensors.items():
        np.testing.assert_allclose(value, network.tensors[name], rtol=1e-10)


def test_batches_of_an_epoch_hold_each_row_once() -> None:
    steps = Training(steps=12, batch=4, learning_rate=0.01, seed=1, at=(3, 6))
    whole, parts = train("1-4:tanh-1", TASK, steps), train("1-4:tanh-1", TASK, Training(steps=12, batch=4, seed=1))
    np.testing.assert_array_equal(whole.losses, parts.losses)
    assert sorted(whole.stored) == [3, 6]
    assert len(whole.losses) == 12


def test_a_batch_above_the_number_of_rows_is_all_rows() -> None:
    found = [train("1-4:tanh-1", TASK, Training(steps=7, batch=batch)).losses for batch in (None, 24, 25, 1000)]
    for losses in found[1:]:
        np.testing.assert_array_equal(losses, found[0])


def test_a_divergence_ends_the_training_and_is_reported() -> None:
    trained = train("1-8:relu-1", TASK, Training(steps=500, optimizer="sgd", learning_rate=1e4, at=(0, 400)))
    assert trained.diverged_at is not None
    assert trained.diverged_at < 500
    assert sorted(trained.stored) == [0]
    assert all(np.isfinite(value).all() for value in trained.network.tensors.values())


def test_training_starts_from_a_given_network() -> None:
    first = train("1-4:tanh-1", TASK, Training(steps=50))
    again = train("1-4:tanh-1", TASK, Training(steps=1, seed=9), start=first.network)
    assert again.losses[0] == pytest.approx(first.network.loss(TASK), rel=1e-5)


def test_dropout_masks_change_at_every_step() -> None:
    trained = train("1-64:relu-dropout(0.5)-1", TASK, Training(steps=20, learning_rate=1e-9))
    assert len(np.unique(trained.losses)) > 15


def test_the_error_is_the_share_of_wrong_classes() -> None:
    y = (X[:, 0] > 0).astype(int)
    for spec, loss in (("1-8:tanh-2", "cross_entropy"), ("1-8:tanh-1", "binary_cross_entropy")):
        task = Task(x=X, y=y, loss=loss)
        trained = train(spec, task, Training(steps=300, learning_rate=0.05))
        assert trained.network.error(task) == 0.0
        assert trained.network.error(Task(x=X, y=1 - y, loss=loss)) == 1.0
