"""RealMLP-TD of pytabkit on rows like those of the recipe. It is one of the peers if pytabkit is installed.

Each epoch includes a validation on a twentieth of the rows, as in normal use.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from recipe_torch import CATEGORIES, NUMBERS


def pytabkit_epochs(batch: int, steps: int, threads: int) -> Callable[[int], None]:
    import pandas as pd
    from pytabkit import RealMLP_TD_Classifier

    held = batch * steps // 19
    rows = batch * steps + held
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, NUMBERS)).astype(np.float32)
    frame = pd.DataFrame({f"x{i}": x[:, i] for i in range(NUMBERS)})
    for i, n in enumerate(CATEGORIES):
        frame[f"c{i}"] = pd.Categorical(np.arange(rows) % n)
    y = x[:, :2].argmax(1)

    def epochs(n: int) -> None:
        model = RealMLP_TD_Classifier(
            device="cpu",
            random_state=0,
            n_cv=1,
            n_refit=0,
            val_fraction=held / rows,
            n_threads=threads,
            n_epochs=n,
            batch_size=batch,
            use_early_stopping=False,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(frame, y)

    return epochs
