"""The sentences of a verdict for given metrics."""

from __future__ import annotations

from typing import Any

from multilayer.pages.report.verdict import verdict


def entry(value: float, *, low: float, high: float, train: float, baseline: float, name: str = "accuracy") -> Any:
    better = "lower" if name in ("rmse", "mae", "log_loss") else "higher"
    return dict(name=name, value=value, low=low, high=high, train=train, baseline=baseline, better=better, how="exact")


def sentences(metric: Any, validation: tuple[float, ...] = (1.0, 0.9, 0.9, 0.9, 0.9, 0.9), **more: Any) -> str:
    evaluation = {
        "metrics": [metric],
        "metric": metric["name"],
        "rows": 200,
        "origin": "held out",
        "in_turn": False,
        "classifies": metric["name"] == "accuracy",
        "calibration": None,
        "coverage": None,
        **more,
    }
    epochs = [{"epoch": i, "validation": value, "loss": value} for i, value in enumerate(validation, 1)]
    run = {"status": "finished", "epochs": len(epochs)}
    found = verdict({"evaluation": evaluation, "run": run, "curves": {"epochs": epochs, "marks": []}})
    return " ".join(one["text"] for one in found["sentences"]) + " " + " ".join(one["text"] for one in found["tries"])


def test_the_sentences_for_each_quality_and_fit() -> None:
    good = sentences(entry(0.95, low=0.92, high=0.97, train=0.96, baseline=0.5))
    assert good.startswith("Good: accuracy 95.0 % on 200 rows it has never seen (95 % interval 92.0 % to 97.0 %);")
    assert "always answering the most frequent class has 50.0 %" in good
    assert "does not overfit" in good
    assert sentences(entry(0.52, low=0.45, high=0.6, train=0.6, baseline=0.5)).startswith("No better than a guess")
    assert "overfit" not in sentences(entry(0.5, low=0.45, high=0.6, train=0.51, baseline=0.5))
    assert "It overfits: accuracy 99.0 %" in sentences(entry(0.75, low=0.7, high=0.8, train=0.99, baseline=0.5))
    falling = sentences(entry(0.8, low=0.7, high=0.85, train=0.82, baseline=0.5), (1.0, 0.9, 0.8, 0.7, 0.6, 0.5))
    assert "still improving" in falling
    assert "--epochs" in falling
    rmse = sentences(entry(2.0, low=1.5, high=2.4, train=1.9, baseline=10.0, name="rmse"))
    assert rmse.startswith("Good: root mean squared error 2 on 200 rows")
    assert "always answering the mean has 10" in rmse
    overconfident = {"of": "the predicted class", "ece": 0.08, "chance": 0.02, "lean": 0.07}
    metric = entry(0.9, low=0.85, high=0.93, train=0.91, baseline=0.5)
    assert "Its probabilities are too confident" in sentences(metric, calibration=overconfident)
    assert "can be trusted" in sentences(metric, calibration={**overconfident, "ece": 0.01})


def test_the_skill_of_a_root_mean_squared_error_uses_its_square() -> None:
    assert sentences(entry(4.0, low=3.6, high=4.4, train=3.9, baseline=10.0, name="rmse")).startswith("Good")


def test_a_model_whose_interval_contains_the_baseline_is_not_clearly_better() -> None:
    assert sentences(entry(0.65, low=0.45, high=0.8, train=0.66, baseline=0.5)).startswith("Not clearly better")
    better = sentences(entry(0.65, low=0.55, high=0.8, train=0.66, baseline=0.5))
    assert better.startswith("Better than a guess: accuracy 65.0 %")
