"""Options by name with constants: losses and optimizers as strings."""

from __future__ import annotations

import pytest

from multilayer.errors import OptionError
from multilayer.nn import losses, optimizers


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("adam", {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}),
        (" adam ( 0.8 , eps = 1e-6 ) ", {"beta1": 0.8, "beta2": 0.999, "eps": 1e-6}),
        ("momentum(0.5)", {"momentum": 0.5}),
        ("sgd()", {}),
    ],
)
def test_optimizers(text: str, constants: dict[str, float]) -> None:
    assert dict(optimizers.get(text).constants) == constants


def test_losses() -> None:
    assert losses.get("quantile(0.1, 0.9)").constant("q") == (0.1, 0.9)
    for named in ("quantile(q=0.1, 0.9)", "quantile(q=0.1, q=0.9)"):
        assert losses.get(named).constant("q") == (0.1, 0.9)
    assert losses.get("quantile").constant("q") == (0.5,)
    assert losses.get("huber(delta=2)").constant("delta") == 2
    assert losses.get("cross_entropy(0.1)").constant("label_smoothing") == 0.1


@pytest.mark.parametrize(
    ("get", "text", "message"),
    [
        (optimizers.get, "adm", "unknown optimizer 'adm': did you mean 'adam'"),
        (optimizers.get, "adam(beta3=1)", "unknown constant of adam 'beta3': did you mean 'beta"),
        (optimizers.get, "adam(1, 2, 3, 4)", "adam takes at most 3 constants, got 4"),
        (optimizers.get, "adam(0.9, beta1=0.8)", "beta1 of adam is given twice"),
        (optimizers.get, "adam(beta1=0.9, beta1=0.8)", "beta1 of adam is given twice"),
        (optimizers.get, "adam(beta1=x)", "constants of adam must be finite numbers, got 'beta1=x'"),
        (optimizers.get, "adam(nan)", "must be finite numbers, got 'nan'"),
        (optimizers.get, "adam(beta2=1)", "beta2 must be at least 0 and below 1, got 1"),
        (optimizers.get, "adam(eps=0)", "eps must be positive, got 0"),
        (optimizers.get, "sgd(momentum=1)", "sgd takes no constants, got momentum=1"),
        (optimizers.get, "adam(", "unknown optimizer"),
        (losses.get, "huber(0)", "delta must be positive, got 0"),
        (losses.get, "quantile(p=0.3)", "unknown constant of quantile 'p': valid: q"),
        (losses.get, "quantile(q=0.3, q=0.3)", "quantiles must increase, got 0.3, 0.3"),
        (losses.get, "quantile(1.5)", "q must be above 0 and below 1, got 1.5"),
        (losses.get, "quantile(0.9, 0.1)", "quantiles must increase, got 0.9, 0.1"),
        (losses.get, "cross_entropy(1)", "label_smoothing must be at least 0 and below 1, got 1"),
        (losses.get, "crossentropy", "did you mean 'cross_entropy'"),
    ],
)
def test_invalid_text_is_an_error(get, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        get(text)
