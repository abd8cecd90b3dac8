"""Model files with a correct hash and invalid content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from multilayer.core import tensor_file


def meanings() -> Iterator[tuple[str, bytes, str]]:
    """Yield invalid files: a description of the change, the bytes of the file, and the expected error."""
    import pyarrow as pa

    import multilayer as ml
    from multilayer.models.model_file import to_parts

    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 2))
    columns = {"a": x[:, 0], "b": x[:, 1], "c": [("red", "green", "blue")[i % 3] for i in range(60)]}
    labels = [("yes", "no", "maybe")[i % 3] for i in range(60)]
    quick: Any = {"target": "y", "epochs": 1, "calibrate": True, "quiet": True}
    classes = ml.fit("2+cat(3)-columns-4:batchnorm:tanh-3", pa.table({**columns, "y": labels}), **quick).model
    numbers = ml.fit("2+cat(3)-columns-4-1", pa.table({**columns, "y": x.sum(1)}), **quick).model
    pair = ml.fit("2+cat(3)-columns-4-1", pa.table({**columns, "y": x.sum(1)}), ensemble=2, **quick).model
    assert classes is not None
    assert numbers is not None
    assert pair is not None

    def tensor(model: Any, name: str, change: Any) -> bytes:
        tensors, meta = to_parts(model)
        made = change(tensors[name].copy()) if name in tensors else change(None)
        kept = {key: value for key, value in tensors.items() if key != name}
        return tensor_file.encode(kept if made is None else {**kept, name: made}, meta)

    def text(model: Any, place: tuple[str | int, ...], value: Any) -> bytes:
        tensors, meta = to_parts(model)
        meta = json.loads(json.dumps(meta))
        inner = meta
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value(inner[place[-1]]) if callable(value) else value
        return tensor_file.encode(tensors, meta)

    def with_first(value: float) -> Any:
        def change(array: Any) -> Any:
            array.flat[0] = value
            return array

        return change

    for model, word in ((classes, "classes"), (numbers, "numbers"), (pair, "an ensemble")):
        for name in [name for name in to_parts(model)[0] if name.startswith("network/")]:
            short = name.removeprefix("network/")
            for value in (np.nan, np.inf, -np.inf):
                yield f"{word}: {value} in {name}", tensor(model, name, with_first(value)), f"{short} must be finite"
            yield f"{word}: {name} missing", tensor(model, name, lambda _: None), f"{short} must have the shape|unknown"
            for dtype in ("int32", "float16", "bool"):
                change = lambda array, dtype=dtype: array.astype(dtype)  # noqa: E731
                yield f"{word}: {name} as {dtype}", tensor(model, name, change), "must be float32 or float64"
            yield (
                f"{word}: {name} with another axis",
                tensor(model, name, lambda array: array[None]),
                "must have the shape",
            )
        for extra in ("network/linear9.weight", "network/member9/linear1.weight", "network/x"):
            yield (
                f"{word}: additional {extra}",
                tensor(model, extra, lambda _: np.zeros(3, "f4")),
                "unknown|must have the",
            )
        yield f"{word}: additional encoding/x", tensor(model, "encoding/x", lambda _: np.zeros(3)), "unknown arrays"
        for name in ("encoding/center", "encoding/scale", "encoding/fill"):
            for value in (np.nan, np.inf):
                yield f"{word}: {value} in {name}", tensor(model, name, with_first(value)), "finite numbers"
            yield f"{word}: {name} in single precision", tensor(model, name, lambda a: a.astype("f4")), "float64"
        for value in (0.0, -1.0):
            yield f"{word}: a scale of {value}", tensor(model, "encoding/scale", with_first(value)), "scales positive"
        for value in (0.0, -1.0, 1e-9, 0.05, 21.0, 1e300, 1, "1", None, True):
            changed = text(model, ("calibration", "temperature"), value)
            yield f"{word}: a temperature of {value!r}", changed, "a temperature from 0.1 to 20"
        twice = lambda found: [found[0], *found[:-1]]  # noqa: E731
        yield f"{word}: a column twice", text(model, ("encoding", "columns", 1, "name"), "a"), "distinct names"
        yield f"{word}: an unknown scaling", text(model, ("encoding", "scaling"), "robus"), "unknown scaling 'robus'"
        yield f"{word}: no target", text(model, ("encoding", "task", "names"), []), "distinct names|not an encoding"
        yield f"{word}: an image of height 0", text(model, ("encoding", "image"), [0, 1, 1]), "three positive"
        yield f"{word}: a huge top", text(model, ("encoding", "top"), 10**400), "not an encoding: OverflowError"
        yield f"{word}: a top of 0", text(model, ("encoding", "top"), 0.0), "top of an encoding must be positive"
        yield f"{word}: a loss that does not match", text(model, ("loss",), "poisson"), "does not match its encoding"
        for value in (None, 1, ["a"]):
            changed = text(model, ("encoding", "columns", 0, "name"), value)
            yield f"{word}: a column with the name {value}", changed, "must have a name and an indicator"
            changed = text(model, ("encoding", "task", "names", 0), value)
            yield f"{word}: a target with the name {value}", changed, "distinct names"
        yield (
            f"{word}: an indicator that is not a boolean",
            text(model, ("encoding", "columns", 0, "indicator"), 1),
            "must have a name and",
        )
        yield f"{word}: a string for positional", text(model, ("encoding", "positional"), "no"), "must be true or false"
        for value in ("evil", {}, ["no"], ["no", "yes"]):
            changed = text(model, ("encoding", "task", "classes"), value)
            yield f"{word}: the classes {value}", changed, "must be lists|cannot have 1 targets and"
        if model is classes:
            for value in ("evil", {}, []):
                changed = text(model, ("encoding", "task", "classes", 0), value)
                yield f"the classes {value} of a target", changed, "must be lists|needs at least two classes"
            for value in (1, True):
                changed = text(model, ("encoding", "task", "classes", 0, 0), value)
                yield f"the class {value} among strings", changed, "all of one type"
            changed = text(model, ("encoding", "task"), lambda task: {**task, "kind": "binary"})
            yield "three classes in a binary task", changed, "a binary task needs two classes"
            yield "a class twice", text(model, ("encoding", "task", "classes", 0), twice), "classes .* distinct"
            yield "a class that is a list", text(model, ("encoding", "task", "classes", 0, 0), ["x"]), "not an encod"
            yield "a class that is null", text(model, ("encoding", "task", "classes", 0, 0), None), "classes must be"
            yield "fewer classes", text(model, ("encoding", "task", "classes", 0), ["no", "yes"]), "does not match"
            variance = next(name for name in to_parts(model)[0] if name.endswith("running_var"))
            yield "a negative variance", tensor(model, variance, with_first(-1.0)), "must not be negative"
        else:
            yield f"{word}: a std of 0", text(model, ("encoding", "task", "std"), [0.0]), "std .* positive"
            yield f"{word}: two means", text(model, ("encoding", "task", "mean"), [0.0, 1.0]), "one for each mean"
            for name in ("low", "high", "errors"):
                place = f"calibration/{name}"
                yield f"{word}: nan in {name}", tensor(model, place, with_first(np.nan)), "all finite"
                yield f"{word}: {name} missing", tensor(model, place, lambda _: None), "low, high and errors"
                yield f"{word}: {name} as float32", tensor(model, place, lambda a: a.astype("f4")), "must be float64"
            wide = lambda a: np.concatenate([a, a], -1)  # noqa: E731
            yield f"{word}: low above high", tensor(model, "calibration/low", with_first(1e9)), "must not be above"
            yield (
                f"{word}: errors not sorted",
                tensor(model, "calibration/errors", lambda a: a[::-1].copy()),
                "be sorted",
            )
            yield (
                f"{word}: errors of twice as many outputs",
                tensor(model, "calibration/errors", wide),
                "outputs of the network",
            )
        vocabulary = [name for name in to_parts(model)[0] if name.startswith("encoding/vocabulary")]
        for name in vocabulary:
            changed = tensor(model, name, lambda array: array.astype(np.float64))
            yield f"{word}: {name} as float64", changed, "a vocabulary of strings must be bytes"
            yield f"{word}: {name} missing", tensor(model, name, lambda _: None), "not an encoding|vocabulary"
        same = lambda a: np.frombuffer(b"x" * a.size, np.uint8)  # noqa: E731
        ends = lambda a: np.array([1, 2, a[-1]])  # noqa: E731
        tensors, meta = to_parts(model)
        words = next(name for name in vocabulary if name.endswith(".text"))
        doubled = {**tensors, words: same(tensors[words]), words[:-4] + "ends": ends(tensors[words[:-4] + "ends"])}
        yield (
            f"{word}: a category twice",
            tensor_file.encode(doubled, meta),
            "categories of column 'c' must be distinct",
        )
