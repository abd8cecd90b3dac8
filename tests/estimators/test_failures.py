"""Signals, divergence, few rows, constant targets, and counts."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import d2_tweedie_score, log_loss

from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import DataError, OptionError
from multilayer.training.setup import Setup
from support.quick_estimators import QUICK, classes, numbers


@pytest.fixture
def heard_at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Simulate Ctrl-C during the evaluation of an epoch."""

    def at(epoch: int) -> None:
        evaluate, count = Setup.evaluate, [0]

        def pressed(self: Setup, *args: Any) -> Any:
            count[0] += 1
            if count[0] == epoch:
                signal.raise_signal(signal.SIGINT)
            return evaluate(self, *args)

        monkeypatch.setattr(Setup, "evaluate", pressed)

    return at


def test_an_interrupted_fit_warns_and_keeps_the_best_model(heard_at: Any) -> None:
    x, y = classes()
    heard_at(3)
    model = MLPClassifier(**{**QUICK, "epochs": 50})
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, y)
    assert model.n_iter_ == 3
    assert model.predict(x).shape == y.shape
    assert model.model_.encoding.task.classes == (tuple(range(3)),)
    best = int(np.argmin(model.history_["tempered_loss"])) + 1
    shorter = MLPClassifier(**{**QUICK, "epochs": 50})
    heard_at(best)
    with pytest.raises(KeyboardInterrupt):
        shorter.fit(x, y)
    np.testing.assert_array_equal(shorter.predict(x), model.predict(x))


def test_history_contains_infinite_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON of an event contains the string "inf" instead, which cannot be plotted."""
    evaluate, count = Setup.evaluate, [0]

    def first_infinite(self: Setup, *args: Any) -> Any:
        count[0] += 1
        loss, found = evaluate(self, *args)
        return (np.inf, found) if count[0] == 1 else (loss, found)

    monkeypatch.setattr(Setup, "evaluate", first_infinite)
    history = MLPRegressor(**QUICK).fit(*numbers()).history_
    assert history["validation_loss"][0] == np.inf
    assert np.isfinite(history["validation_loss"][1:]).all()


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_failed_refit_does_not_change_the_model(warm_start: bool) -> None:
    x, y = classes(80, count=2)
    frame = pd.DataFrame(x, columns=list("abcd"))
    model = MLPClassifier(**QUICK, warm_start=warm_start).fit(frame, np.array(["no", "yes"])[y])
    before = model.predict(frame)
    for other, options in ((frame.drop(columns="d"), {"epochs": 0}), (x, {"learning_rate": -1.0})):
        with pytest.raises((OptionError, DataError)):
            model.set_params(**options).fit(other, np.array(["cat", "dog"])[y])
        model.set_params(**QUICK, learning_rate=None)
        np.testing.assert_array_equal(model.predict(frame), before)
        assert model.n_features_in_ == 4
        assert list(model.feature_names_in_) == list("abcd")
    new = MLPClassifier(**{**QUICK, "epochs": 0})
    for call in (new.fit, new.partial_fit):
        with pytest.raises(OptionError):
            call(x, y)
        assert not hasattr(new, "classes_")
        assert not hasattr(new, "n_features_in_")
    number = MLPRegressor(**QUICK).fit(x, y)
    with pytest.raises(OptionError):
        number.set_params(epochs=0).fit(x[:, :2], y)
    assert number.predict(x).shape == (80,)


def test_an_interrupted_fit_saves_the_names_of_its_classes(heard_at: Any) -> None:
    x, y = classes(80, count=2)
    heard_at(2)
    model = MLPClassifier(**QUICK)
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, np.array(["no", "yes"])[y])
    assert model.model_.encoding.task.classes == (("no", "yes"),)


def test_sigterm_ends_a_fit() -> None:
    code = (
        "import signal, numpy as np\n"
        "from multilayer import MLPRegressor\n"
        "from multilayer.training.setup import Setup\n"
        "evaluate = Setup.evaluate\n"
        "def asked(self, *args):\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    return evaluate(self, *args)\n"
        "Setup.evaluate = asked\n"
        "x = np.linspace(0, 1, 60)[:, None]\n"
        "MLPRegressor(epochs=5, ensemble=1, hidden=(4,)).fit(x, x[:, 0])\n"
        "print('went on')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert "went on" not in done.stdout


def test_a_fit_that_diverges_warns() -> None:
    x, y = numbers()
    with pytest.warns(
        ConvergenceWarning, match=r"training diverged at epoch \d+; the model is .*try a lower learning_rate"
    ):
        MLPRegressor(**{**QUICK, "epochs": 20}, learning_rate=1e30).fit(x, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_decay": float("nan")}, "weight_decay must be finite and at least 0, got nan"),
        ({"learning_rate": float("inf")}, "learning_rate must be finite, got inf"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive, got nan"),
    ],
)
def test_options_that_are_not_finite_are_refused(options: dict[str, float], message: str) -> None:
    x, y = numbers()
    with pytest.raises(OptionError, match=message):
        MLPRegressor(**QUICK, **options).fit(x, y)  # type: ignore[arg-type]


@pytest.mark.parametrize("ensemble", [None, 1])
def test_few_rows_do_not_give_overconfident_probabilities(ensemble: int | None) -> None:
    """The best possible log-loss is 0.5. Training for 256 epochs on 40 rows without held-out rows gives 3 to 7."""
    found: list[float] = []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(540, 4))
        y = (generator.random(540) < 1 / (1 + np.exp(-1.5 * x[:, 0] - x[:, 1]))).astype(int)
        model = MLPClassifier(ensemble=ensemble, random_state=seed).fit(x[:40], y[:40])
        found.append(log_loss(y[40:], model.predict_proba(x[40:])))
    assert np.mean(found) < 0.85


def test_a_target_of_one_value_is_certain() -> None:
    x, _ = numbers()
    model = MLPRegressor(**QUICK).fit(x, np.ones(len(x)))
    np.testing.assert_array_equal(model.predict(x), 1.0)
    np.testing.assert_array_equal(model.predict_interval(x), 1.0)
    np.testing.assert_array_equal(model.predict_quantiles(x), 1.0)


@pytest.mark.parametrize("value", [0, 3, 1e6])
@pytest.mark.parametrize("how", [{}, {"ensemble": 1}, {"validation": None}])
def test_counts_of_one_value_are_certain(value: float, how: dict[str, Any]) -> None:
    """For counts of 0, the prediction is the smallest positive value of exp, at most 1e-300."""
    x, _ = numbers()
    model = MLPRegressor(**{**QUICK, "epochs": 1, **how}, loss="poisson").fit(x, np.full(len(x), value))
    np.testing.assert_allclose(model.predict(x), value, rtol=1e-12, atol=1e-300)
    if "validation" not in how:
        np.testing.assert_allclose(model.predict_interval(x), value, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("mean", [1, 20_000])
def test_counts_of_any_size_are_learned(mean: float) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1200, 3))
    y = generator.poisson(mean * np.exp(x[:, 0]))
    ours = MLPRegressor(loss="poisson", ensemble=1, epochs=96, random_state=0).fit(x[:600], y[:600]).predict(x[600:])
    linear = PoissonRegressor(alpha=0).fit(x[:600], y[:600]).predict(x[600:])  # a model of the true form
    assert d2_tweedie_score(y[600:], ours, power=1) > d2_tweedie_score(y[600:], linear, power=1) - 0.06


@pytest.mark.filterwarnings("ignore:.*far outside the training range")
def test_quantiles_do_not_cross() -> None:
    x, y = numbers()
    model = MLPRegressor(**QUICK, loss="quantile(0.1, 0.5, 0.9)").fit(x, y)
    levels = model.predict_quantiles(4 * x)
    assert (np.diff(levels, axis=1) >= 0).all()
