"""The content of a model file (`core.tensor_file`): JSON for the description, and tensors for all numbers.

The keys of the JSON:

    spec, encoding    network and encoding of the first member, and of all members unless they differ
    other_specs, other_encodings
                      further networks and encodings if members differ, each stored once
    members           for each member, the indices (from 1) of its network and its encoding, if members differ
    loss, weights     the loss, and the weights of the members unless they are equal
    calibration       the calibration, if the model has one

The names of the tensors:

    network/…         parameters and buffers; of several members `network/member1/…`, `network/member2/…`, …
    encoding/…        numbers of the first encoding; of the second `encoding/2/…`
    calibration/…     numbers of the calibration

Equal models have equal bytes. Loading a file never runs code from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import Encoding
from ..engines.ensemble import member_name
from ..errors import DataError, FileError
from ..nn import losses
from ..nn.calibration import Calibration
from ..nn.layers.base import Array
from ..spec import Spec

if TYPE_CHECKING:
    from .trained_model import TrainedModel


MIXED = ("other_specs", "other_encodings", "members")
"""Keys that a file has only if members differ."""


def to_parts(model: TrainedModel) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the tensors and the JSON of a model."""
    network = model.tensors
    _check_tensors(network, network, "the model")
    tensors = {f"network/{name}": value for name, value in network.items()}
    specs, encodings = list(dict.fromkeys(one.spec for one in model.members)), model.encodings
    described: list[dict[str, Any]] = []
    for i, encoding in enumerate(encodings, 1):
        data, arrays = encoding.to_parts()
        described.append(data)
        tensors |= {f"encoding/{name}" if i == 1 else f"encoding/{i}/{name}": a for name, a in arrays.items()}
    meta: dict[str, Any] = {"spec": specs[0].to_dict(), "encoding": described[0], "loss": model.encoding.loss}
    if len(specs) > 1 or len(encodings) > 1:
        meta |= {"other_specs": [spec.to_dict() for spec in specs[1:]], "other_encodings": described[1:]}
        meta["members"] = [[specs.index(m.spec) + 1, encodings.index(m.encoding) + 1] for m in model.members]
    if model.weights is not None:
        meta["weights"] = list(model.weights)
    if model.calibration is not None:
        meta["calibration"], arrays = model.calibration.to_parts()
        tensors |= {f"calibration/{name}": value for name, value in arrays.items()}
    return tensors, meta


def from_parts(
    tensors: Mapping[str, Array], meta: Mapping[str, Any], path: str
) -> tuple[list[dict[str, Any]], Calibration | None]:
    """Return the fields of each `Member`, and the calibration. Raise an error if they are inconsistent."""
    spec = Spec.from_dict(meta["spec"])
    parts: dict[str, dict[str, Array]] = {"network": {}, "encoding": {}}
    for name, value in tensors.items():
        group, _, rest = name.partition("/")
        parts.setdefault(group, {})[rest] = value
    unexpected = sorted(parts.keys() - {"network", "encoding", *meta})
    if unexpected:
        raise FileError(
            f"{path}: the file has tensors named {unexpected[0]}/…, but its metadata has no {unexpected[0]}"
        )
    network = parts["network"]
    members = max(len({name.partition("/")[0] for name in network if "/" in name}), 1)
    specs, encodings = [spec] * members, _encodings(meta, parts["encoding"], path)
    if any(key in meta for key in MIXED):
        specs, encodings = _of_members(meta, [spec], encodings, path)
    else:
        encodings *= members
    expected = joined([one.parameters | one.buffers for one in specs])
    for name, parameter in expected.items():
        if name not in network or network[name].shape != parameter.shape:
            found = network[name].shape if name in network else "none"
            raise FileError(f"{path}: {name} must have the shape {parameter.shape}, got {found}")
    _check_tensors(network, expected, path)
    for spec, encoding in zip(specs, encodings, strict=True):
        if encoding.loss != meta["loss"] or encoding.inputs != spec.inputs or encoding.outputs != spec.d_out:
            raise FileError(f"{path}: its network does not match its encoding")
    calibration = None
    if "calibration" in meta:
        outputs = spec.d_out, spec.d_out // losses.get(meta["loss"]).per_target
        calibration = Calibration.from_parts(meta["calibration"], parts.get("calibration", {}), path, outputs)
    weights = _weights(meta.get("weights", [1.0] * len(specs)), len(specs), path)
    fields = zip(specs, split(network, len(specs)), encodings, weights, strict=True)
    return [{"spec": s, "tensors": t, "encoding": e, "weight": w} for s, t, e, w in fields], calibration


def _encodings(meta: Mapping[str, Any], arrays: Mapping[str, Array], path: str) -> list[Encoding]:
    """Return the encodings of a file, that of the first member first."""
    described = [meta["encoding"], *_listed(meta, "other_encodings", path)]
    groups: list[dict[str, Array]] = [{} for _ in described]
    for name, value in arrays.items():
        number, _, rest = name.rpartition("/")
        if number and number not in map(str, range(2, len(described) + 1)):
            raise FileError(f"{path}: the tensor encoding/{name} belongs to none of the {len(described)} encodings")
        groups[int(number or 1) - 1][rest] = value
    try:
        return [Encoding.from_parts(one, group) for one, group in zip(described, groups, strict=True)]
    except DataError as error:
        raise FileError(f"{path}: {error}") from None


def _of_members(
    meta: Mapping[str, Any], specs: list[Spec], encodings: list[Encoding], path: str
) -> tuple[list[Spec], list[Encoding]]:
    """Return the network and the encoding of each member, from a file whose members differ."""
    specs = [*specs, *(Spec.from_dict(one) for one in _listed(meta, "other_specs", path))]
    found: list[tuple[Spec, Encoding]] = []
    for one in _listed(meta, "members", path):
        numbers = one if isinstance(one, list) and [type(i) for i in one] == [int, int] else [0, 0]
        if not (1 <= numbers[0] <= len(specs) and 1 <= numbers[1] <= len(encodings)):
            raise FileError(
                f"{path}: each member must be a pair [network, encoding] with indices up to {len(specs)} and "
                f"{len(encodings)}, got {str(one)[:80]}"
            )
        found.append((specs[numbers[0] - 1], encodings[numbers[1] - 1]))
    if len(found) < 2:
        raise FileError(f"{path}: a file with different members must have at least 2 members, got {len(found)}")
    return [spec for spec, _ in found], [encoding for _, encoding in found]


def _listed(meta: Mapping[str, Any], key: str, path: str) -> list[Any]:
    """Return a list in the metadata. It is empty if the key is missing."""
    found = meta.get(key, [])
    if not isinstance(found, list):
        raise FileError(f"{path}: {key} must be a list, got {str(found)[:80]}")
    return found


def joined(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the tensors of all members in one dictionary; those of several members under `memberN/`."""
    if len(members) == 1:
        return dict(members[0])
    return {f"{member_name(i)}/{name}": value for i, one in enumerate(members) for name, value in one.items()}


def split(tensors: Mapping[str, Any], members: int) -> list[dict[str, Any]]:
    """Return the tensors of each member. The inverse of `joined`."""
    starts = [f"{member_name(i)}/" if members > 1 else "" for i in range(members)]
    return [{n.removeprefix(start): v for n, v in tensors.items() if n.startswith(start)} for start in starts]


def _weights(found: Any, members: int, path: str) -> list[float]:
    """Check the member weights of a file."""
    numbers = isinstance(found, list) and all(type(one) is float and 0 < one < float("inf") for one in found)
    if not numbers or len(found) != members:
        raise FileError(
            f"{path}: the weights of a model must be {members} positive numbers, one for each member, got "
            f"{str(found)[:80]}"
        )
    return found


def _check_tensors(network: Mapping[str, Array], expected: Mapping[str, Any], path: str) -> None:
    """Raise an error for tensors that do not belong to the network or are not finite."""
    for name, value in network.items():
        if name not in expected:
            raise FileError(
                f"{path}: unknown tensor {name!r}: none of the {len(expected)} tensors of the network has that name"
            )
        if str(value.dtype) not in ("float32", "float64"):
            raise FileError(f"{path}: {name} must be float32 or float64, got {value.dtype}")
        bad = np.flatnonzero(~np.isfinite(value))
        if len(bad):
            raise FileError(
                f"{path}: {name} must be finite, got {value.flat[bad[0]]} among {value.size:,} values "
                f"({len(bad):,} are not finite): train again, or use another copy"
            )
        if name.endswith("running_var") and (value < 0).any():
            raise FileError(f"{path}: {name} must not be negative, got {value.min()}")
