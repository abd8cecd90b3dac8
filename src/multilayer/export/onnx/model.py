"""Export a trained model to ONNX, from the columns of a table to predictions.

    columns → encoding (`columns`) → members (`layers`) → mean, calibration, classes or units (`predictions`)

The operators are those of ONNX 1.15 (opset 20, ai.onnx.ml 4), which runtimes support since 2023. The network computes
in float32, the steps before and after it in float64, as in `TrainedModel`. Results are equal up to rounding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core import atomic_files
from ...core.version import __version__
from ...engines.ensemble import member_name
from ...errors import DataError, OptionError, needed_by
from ...nn.calibration import combination
from ..protocol import Trained, distinct, trained
from . import columns, layers, predictions
from .graph import Graph, Node, Port

OPSETS = {"": 20, "ai.onnx.ml": 4}
IR_VERSION = 9
LARGEST = 2**31 - 2**24
"""Largest size of the constants in bytes. The format is limited to 2 GiB."""


def to_onnx(model: Any, path: str | Path) -> None:
    """Write an ONNX model that takes the raw columns of a table and returns the values of `predict`.

    The file contains the whole model: the encoding, every member, their average and its calibration.
    docs/explanation/export.md lists the inputs and outputs.

    Parameters
    ----------
    model : TrainedModel, Run or fitted estimator
        A trained model.
    path : str or Path
        The file to write. An existing file is replaced only when the new one is complete.

    Raises
    ------
    OptionError
        If `model` is not trained, or is too large for the format.
    DataError
        If ONNX cannot express a column. docs/explanation/export.md lists these columns.
    MissingExtra
        If the package onnx is not installed.

    Examples
    --------
    >>> import tempfile
    >>> import multilayer as ml
    >>> model = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ml.to_onnx(model, f"{folder}/iris.onnx")
    """
    found = trained(
        model, otherwise="export the module of an untrained network, such as ml.build(spec), with torch.onnx.export"
    )
    atomic_files.write(path, encode(found))
    for encoding in distinct(found.members):
        columns.warn_of_empty_strings(encoding)


def encode(model: Trained) -> bytes:
    """Return the content of the file. Equal models give equal bytes."""
    inputs, outputs = _inputs(model), predictions.ports(model.encoding)
    for port in inputs:
        if port.name in predictions.NAMES:
            raise DataError(
                f"column {port.name!r} has the name of an output of the ONNX model "
                f"({', '.join(predictions.NAMES)}): rename the column, then train again"
            )
    graph = Graph(port.name for port in (*inputs, *outputs))
    rows = {id(encoding): columns.write(graph, encoding) for encoding in distinct(model.members)}
    n = len(model.members)
    prefixes = [f"network/{member_name(i)}/" for i in range(n)] if n > 1 else ["network/"]
    z = [
        layers.network(graph, one.spec, one.tensors, rows[id(one.encoding)], prefix=prefix)
        for one, prefix in zip(model.members, prefixes, strict=True)
    ]
    predictions.write(graph, model.encoding, z, model.calibration, model.weights)
    size = sum(value.nbytes for value in graph.constants.values())
    if size > LARGEST:
        raise OptionError(
            f"an ONNX file must hold at most {LARGEST:,} bytes of numbers, got {size:,}: use the model file"
        )
    networks = " + ".join(dict.fromkeys(str(one.spec) for one in model.members))
    description = f"{combination(n, model.calibration)}; {networks}; {model.encoding.task.describe()}"
    return _file(graph, inputs, outputs, description=description)


def _inputs(model: Trained) -> list[Port]:
    """Return the columns that at least one member reads. Raise an error if members read a column as different types."""
    found: dict[str, Port] = {}
    for i, one in enumerate(model.members):
        for port in columns.ports(one.encoding):
            first = found.setdefault(port.name, port)
            if (first.dtype, first.shape) != (port.dtype, port.shape):
                raise DataError(
                    f"column {port.name!r}: ONNX needs one type for a column, but member {i + 1} reads it as "
                    f"{port.description} and another member as {first.description}: export the members one by one"
                )
    return list(found.values())


def _file(graph: Graph, inputs: list[Port], outputs: list[Port], *, description: str) -> bytes:
    with needed_by("export to ONNX"):
        import onnx
        from onnx import helper, numpy_helper

    def tensor(value: NDArray[Any], name: str = "") -> Any:
        return numpy_helper.from_array(value, name)

    def kind(dtype: Any) -> int:
        return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def attribute(value: Any) -> Any:
        return tensor(value) if isinstance(value, np.ndarray) else kind(value) if isinstance(value, np.dtype) else value

    def node(one: Node) -> Any:
        attributes = {name: attribute(value) for name, value in one.attributes.items()}
        return helper.make_node(
            one.kind, one.inputs, [one.output, *one.unread], name=one.output, domain=one.domain or None, **attributes
        )

    def port(one: Port) -> Any:
        return helper.make_tensor_value_info(one.name, kind(one.dtype), one.shape, doc_string=one.description)

    made = helper.make_graph(
        [node(one) for one in graph.nodes],
        "multilayer",
        [port(one) for one in inputs],
        [port(one) for one in outputs],
        [tensor(value, name) for name, value in graph.constants.items()],
        doc_string=description,
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    model: onnx.ModelProto = helper.make_model(
        made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="multilayer", producer_version=__version__
    )
    return model.SerializeToString(deterministic=True)
