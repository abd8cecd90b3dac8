"""What the verdict says about what is reachable: simple methods, and wrong labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.pages.report.reachable import noise_sentences, reach_of
from multilayer.pages.report.report import report
from multilayer.pages.report.verdict import verdict
from support.findings import DEAD, LEAKAGE

FAST: dict[str, Any] = {"quiet": True, "threads": 1}
FLAT = (1.0, 0.9, *(0.85,) * 8)
FALLING = tuple(0.9**i for i in range(10))
NOISE: dict[str, Any] = {"kind": "label_noise", "evidence": {"share": 0.2, "suspects": 4, "rows": 800}}


def compared(
    network: float, linear: float, features: float, neighbors: float, *, error: float = 0.01, **more: Any
) -> dict[str, Any]:
    """Return a comparison by accuracy on a table with two equally frequent classes."""
    skills = {"network": network, "linear": linear, "features": features, "neighbors": neighbors}
    scores = {name: 0.5 + skill / 2 for name, skill in skills.items()}
    facts = {"metric": "accuracy", "rows": 1000, "train_rows": 800}
    return {"skills": skills, "scores": scores, "error": error, **facts, **more}


AGREE = compared(0.6, 0.58, 0.59, 0.3)


def judged(
    references: dict[str, Any] | None,
    *findings: dict[str, Any],
    value: float = 0.0,
    losses: tuple[float, ...] = FLAT,
    rows: int = 800,
    parameters: int = 9000,
) -> dict[str, Any]:
    """Return the verdict on a classifier. By default, its accuracy is that of the comparison."""
    if not value:
        value = 0.6 if references is None else references["scores"]["network"]
    metric = dict(name="accuracy", value=value, low=value - 0.03, high=value + 0.03, train=value, baseline=0.5)
    evaluation = {
        "metrics": [metric | {"better": "higher", "how": "exact"}],
        "metric": "accuracy",
        "rows": 1000,
        "origin": "held out",
        "in_turn": False,
        "classifies": True,
        "calibration": None,
        "coverage": None,
        "references": references,
    }
    epochs = [{"epoch": i, "validation": loss, "loss": loss} for i, loss in enumerate(losses, 1)]
    return verdict(
        {
            "evaluation": evaluation,
            "run": {"status": "finished", "epochs": len(epochs), "rows": rows},
            "curves": {"epochs": epochs, "marks": []},
            "cost": {"parameters": parameters},
            "findings": [{**one, "remedies": one.get("remedies", [])} for one in findings],
        }
    )


def second(found: dict[str, Any]) -> tuple[str, str]:
    """Return tone and text of the sentence after the one about the quality."""
    return found["sentences"][1]["tone"], found["sentences"][1]["text"]


def tries(found: dict[str, Any]) -> str:
    return " ".join(one["text"] for one in found["tries"])


def test_a_model_that_is_clearly_worse_than_a_simple_method_can_be_better() -> None:
    found = judged(compared(0.2, 0.3, 0.66, 0.5))
    assert found["sentences"][0]["text"].startswith("Better than a guess")
    text = "Worse than ridge regression on random features, which reaches an accuracy of 83.0 %"
    assert second(found) == ("bad", f"{text}: more is reachable on this table.")
    assert "a simple method is better than this run" in tries(found)
    assert "columns explain little" not in tries(found)


def test_a_model_is_not_good_if_a_simple_method_is_clearly_better() -> None:
    found = judged(compared(0.82, 0.97, 0.3, 0.3))
    assert found["sentences"][0]["tone"] == "fair"
    assert not found["sentences"][0]["text"].startswith("Good")
    assert judged(compared(0.82, 0.8, 0.3, 0.3))["sentences"][0]["text"].startswith("Good")


def test_a_certain_but_small_lead_of_a_simple_method() -> None:
    tone, text = second(judged(compared(0.5, 0.56, 0.3, 0.3)))
    assert (tone, text[:52]) == ("fair", "Slightly worse than ridge regression, which reaches ")
    assert text.endswith("more is reachable on this table.")


def test_different_methods_that_agree_are_close_to_what_is_reachable() -> None:
    close = ": this is probably close to what this table allows."
    found = judged(AGREE)
    text = "About as good as ridge regression on random features, which reaches an accuracy of 79.5 %"
    assert second(found) == ("good", text + close)
    tone, text = second(judged(compared(0.3, 0.22, 0.2, 0.16)))
    assert tone == "good"
    assert text == (
        "Better in accuracy than ridge regression (61.0 %), ridge regression on random features (60.0 %) and the mean "
        f"of the nearest rows (58.0 %){close}"
    )


@pytest.mark.parametrize(
    ("references", "findings", "changes"),
    [
        (AGREE, [], {"losses": FALLING}),  # still improving
        (AGREE, [], {"rows": 10_000}),  # the methods were fitted on a small share of the rows
        (compared(0.6, 0.1, 0.2, 0.2), [], {}),  # much better than every method
        (compared(0.96, 0.95, 0.9, 0.9), [], {}),  # nearly perfect
        (AGREE, [DEAD.to_dict()], {}),
        (AGREE, [NOISE], {}),
    ],
)
def test_nothing_is_said_about_the_limit_without_evidence(
    references: dict[str, Any], findings: list[dict[str, Any]], changes: dict[str, Any]
) -> None:
    text = second(judged(references, *findings, **changes))[1]
    assert text.startswith(("About as good", "Better in accuracy"))
    assert "close to what this table allows" not in text


def test_leakage_says_nothing_about_the_training() -> None:
    assert "close to what" in second(judged(AGREE, LEAKAGE.to_dict()))[1]


def test_advice_for_a_wider_network_contradicts_methods_that_agree() -> None:
    few: dict[str, Any] = {"parameters": 9}
    assert "wider" in tries(judged(None, **few))
    agree = tries(judged(compared(0.2, 0.18, 0.19, 0.15), value=0.6, **few))
    assert "wider" not in agree
    assert "columns explain little" in agree


def test_columns_that_say_nothing_to_any_method() -> None:
    found = judged(compared(0.02, 0.01, -0.05, 0.03))
    assert found["sentences"][0]["text"].startswith("No better than a guess")
    assert "no better than a guess either" in second(found)[1]
    # By another metric, the model is better than a guess, so accuracy cannot tell.
    assert "Simple methods" not in str(judged(compared(0.02, 0.01, -0.05, 0.03), value=0.9))


def test_a_comparison_on_fewer_rows_names_them() -> None:
    text = second(judged(compared(0.2, 0.3, 0.66, 0.5, rows=500)))[1]
    assert "83.0 % on 500 of these rows, where the model has an accuracy of 60.0 %: more" in text


def test_wrong_labels_limit_the_accuracy() -> None:
    found = judged(compared(0.5, 0.3, 0.3, 0.3), NOISE)
    text = (
        "About 20 % of the labels are probably wrong, so an accuracy above about 80 % is not reachable on such labels."
    )
    assert found["sentences"][2] == {"tone": "fair", "text": text}
    ((_, high),) = noise_sentences([NOISE], 0.84)
    assert "about the highest that can be reached" in high
    assert noise_sentences([DEAD.to_dict()], 0.84) == []


def test_without_a_comparison_only_the_baseline_counts() -> None:
    assert reach_of(None, 800) == "unknown"
    texts = [one["text"] for one in judged(None)["sentences"]]
    assert texts[0].startswith("Better than a guess: accuracy 60.0 %")
    assert "reach" not in " ".join(texts)


def test_a_small_network_on_two_spirals_is_worse_than_the_nearest_rows(tmp_path: Path) -> None:
    ml.fit("2-4-1", "spirals(n=600)", epochs=30, run=tmp_path / "run", **FAST)
    found = report(tmp_path / "run")
    numbers = found["evaluation"]["references"]
    own = next(one["value"] for one in found["evaluation"]["metrics"] if one["name"] == "accuracy")
    assert numbers["scores"]["network"] == pytest.approx(own)
    assert numbers["scores"]["neighbors"] > 0.9
    assert (numbers["rows"], numbers["train_rows"]) == (120, 480)
    tone, text = second(found["verdict"])
    assert tone == "bad"
    reached = f"{100 * numbers['scores']['neighbors']:.1f} %"
    assert text.startswith(f"Worse than the mean of the nearest rows, which reaches an accuracy of {reached}: more is")


def test_each_row_of_an_ensemble_with_folds_is_compared_with_methods_that_did_not_see_it(tmp_path: Path) -> None:
    """The target is random, so a method that saw a row would be better than a guess."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(200, 40)), rng.normal(size=200)
    ml.fit(None, (x, y), epochs=2, run=tmp_path / "run", **FAST)
    found = report(tmp_path / "run")["evaluation"]
    assert found["in_turn"]
    assert found["references"]["rows"] == found["rows"]
    assert max(found["references"]["skills"].values()) < 0.1
    assert found["references"]["metric"] == "r2"


def test_weighted_rows_are_not_compared(tmp_path: Path) -> None:
    ml.fit("4-3", "iris", epochs=1, class_weight={"setosa": 2.0}, run=tmp_path / "weighted", **FAST)
    ml.fit("4-3", "iris", epochs=1, run=tmp_path / "run", **FAST)
    assert report(tmp_path / "weighted")["evaluation"]["references"] is None
    assert report(tmp_path / "run")["evaluation"]["references"]["rows"] == 30
    assert report(tmp_path / "run", data="iris")["evaluation"]["references"] is None
