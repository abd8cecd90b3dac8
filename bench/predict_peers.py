"""Time predictions of other tools in a separate environment. `predict.py` runs this script.

The script reads one JSON request per line, {"peer": "torch", "network": "784-256-128-10", "rows": 1, "threads": 2,
"calls": 100}, and answers with the seconds per call in the fastest of five runs of `calls` calls. Each tool is called
like its users call it, with arrays that are ready. A network is a string of widths, or "recipe".

    python bench/predict_peers.py --versions        print the installed versions
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

Call = Callable[[], Any]


def inputs(network: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    from recipe_torch import CATEGORIES, NUMBERS

    generator = np.random.default_rng(0)
    d = NUMBERS if network == "recipe" else int(network.split("-")[0])
    x = generator.normal(size=(rows, d)).astype(np.float32)
    return x, np.stack([generator.integers(0, n + 1, size=rows) for n in CATEGORIES], axis=1)


@cache
def model(network: str) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    if network == "recipe":
        from recipe_torch import Recipe

        return Recipe().eval()
    layers: list[nn.Module] = []
    for d_in, d_out in pairwise(map(int, network.split("-"))):
        layers += [nn.Linear(d_in, d_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


@cache
def torch_call(network: str, rows: int, threads: int, compiled: bool) -> Call:
    import torch

    found = model(network)
    x, codes = (torch.from_numpy(a) for a in inputs(network, rows))
    given = (x, codes) if network == "recipe" else (x,)
    run = torch.compile(found) if compiled else found

    def call() -> Any:
        with torch.inference_mode():
            return run(*given)

    return call


@cache
def onnx_bytes(network: str) -> bytes:
    """Return a graph that is written for speed: Gemm nodes with factors, and elementwise nodes."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: Any) -> str:
        array = value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)
        constants.append(numpy_helper.from_array(array.copy(), name))
        return name

    def node(kind: str, *given: str, **how: Any) -> str:
        name = f"{kind}{len(nodes)}"
        nodes.append(helper.make_node(kind, list(given), [name], **how))
        return name

    found = model(network)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", inputs(network, 1)[0].shape[1]])]
    if network == "recipe":
        tables = len(inputs(network, 1)[1][0])
        given.append(helper.make_tensor_value_info("codes", TensorProto.INT64, ["n", tables]))
        wide = node("Unsqueeze", "x", constant("two", np.array([2])))  # (n, F, 1)
        turned = node("Transpose", node("Mul", wide, constant("w", 2 * math.pi * found.frequency)), perm=[1, 0, 2])
        waves = node("Cos", node("Add", turned, constant("phase", found.phase[:, None])))  # (F, n, K)
        sums = node("Add", node("MatMul", waves, constant("W", found.weight)), constant("b", found.bias[:, None]))
        joined = node("Concat", wide, node("Transpose", sums, perm=[1, 0, 2]), axis=2)
        pieces = [node("Flatten", joined)]
        for i in range(tables):
            code = node("Gather", "codes", constant(f"i{i}", np.array(i)), axis=1)
            pieces.append(node("Gather", constant(f"table{i}", getattr(found, f"table{i}")), code))
        z = node("Mul", node("Concat", *pieces, axis=1), constant("scale", found.scale))
        for i, linear in enumerate(found.linears):
            how = {"alpha": 1 / math.sqrt(linear.in_features), "transB": 1}
            z = node("Gemm", z, constant(f"w{i}", linear.weight), constant(f"b{i}", linear.bias), **how)
            if i < len(found.blends):
                moved = node("Sub", node("Selu", z), z)
                z = node("Add", z, node("Mul", moved, constant(f"blend{i}", found.blends[i])))
    else:
        z = "x"
        linears = [layer for layer in found if hasattr(layer, "weight")]
        for i, linear in enumerate(linears):
            z = node("Gemm", z, constant(f"w{i}", linear.weight), constant(f"b{i}", linear.bias), transB=1)
            z = node("Relu", z) if i + 1 < len(linears) else z
    nodes[-1].output[0] = "z"
    out = [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", "d"])]
    graph = helper.make_graph(nodes, "network", given, out, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return made.SerializeToString()


@cache
def onnx_call(network: str, rows: int, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(onnx_bytes(network), options, providers=["CPUExecutionProvider"])
    x, codes = inputs(network, rows)
    given = {"x": x, "codes": codes} if network == "recipe" else {"x": x}
    expected = torch_call(network, rows, 1, False)().numpy()
    np.testing.assert_allclose(session.run(None, given)[0], expected, rtol=1e-3, atol=1e-3)
    return lambda: session.run(None, given)


@cache
def sklearn_call(network: str, rows: int) -> Call:
    from sklearn.neural_network import MLPClassifier

    widths = tuple(map(int, network.split("-")))
    found = MLPClassifier(widths[1:-1], max_iter=1, random_state=0)
    found.partial_fit(inputs(network, 64)[0], np.arange(64) % widths[-1], classes=range(widths[-1]))
    x = inputs(network, rows)[0]
    return lambda: found.predict_proba(x)


def call_of(request: dict[str, Any]) -> Call:
    network, rows, threads = request["network"], request["rows"], request.get("threads", 1)
    match request["peer"]:
        case "onnxruntime":
            return onnx_call(network, rows, threads)
        case "torch" | "torch.compile" as peer:
            import torch

            torch.set_num_threads(threads)
            return torch_call(network, rows, threads, peer == "torch.compile")
        case "sklearn":
            return sklearn_call(network, rows)
        case other:
            raise ValueError(f"unknown peer {other!r}")


def fastest(call: Call, calls: int, runs: int = 5) -> float:
    """Return the seconds per call in the fastest run."""
    call()
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def versions() -> dict[str, str]:
    from importlib import metadata

    return {name: metadata.version(name) for name in ("torch", "onnxruntime", "scikit-learn", "numpy")}


def main() -> None:
    if "--versions" in sys.argv:
        print(json.dumps(versions()))
        return
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(fastest(call_of(request), request["calls"])), flush=True)


if __name__ == "__main__":
    main()
