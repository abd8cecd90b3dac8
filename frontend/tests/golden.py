"""Writes the reference numbers for the engine of the pages, computed by PyTorch in float64 and by `ml.trace`.

    python golden.py OUT.json

The file has networks of dense layers with every activation of the pages, three losses, and 20 steps of each optimizer.
It also has every row of tests/support/cases.py that the pages compute, by `ml.trace`, which
tests/interpretation/test_trace.py compares with autograd. If both sources compute a number, the script checks that they
agree. For the initialization schemes of the pages, the file has the standard deviation of the weights and the predicted
mean squares, by `ml.variance`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import multilayer as ml
from multilayer.interpretation import Trace, to_float64
from multilayer.nn.activations import get

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.cases import ACTIVATION_ROWS, ALL

ACTIVATIONS = [
    name
    for name, row in ACTIVATION_ROWS.items()
    if row.page == "yes" and get(name).elementwise and not get(name).learned and name != "sqrt"  # NaN for negative z
]
LOSSES: dict[str, Any] = {
    "mse": nn.functional.mse_loss,
    "binary_cross_entropy": nn.functional.binary_cross_entropy_with_logits,
    "cross_entropy": nn.functional.cross_entropy,
}
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
}
RATES = {"sgd": 0.05, "momentum": 0.02, "adam": 0.05}
STEPS = 20
SCHEMES = ("xavier", "he", "lecun", "normal(1)", "normal(0.01)")


def main(out: Path) -> None:
    torch.set_num_threads(1)
    draw = np.random.default_rng(7)
    cases = [dense(draw, name, i) for i, name in enumerate(ACTIVATIONS * 13)]
    programs = [program(draw, case.name, case.spec) for case in ALL if case.page == "yes"]
    depths = [depth(scheme, activation) for scheme in SCHEMES for activation in ("relu", "tanh", "sigmoid")]
    out.write_text(json.dumps({"dense": cases, "programs": programs, "depths": depths}))


def depth(scheme: str, activation: str) -> dict[str, Any]:
    """Return predicted mean squares through six layers of 64 units at initialization, by `ml.variance`."""
    layers = ml.variance(f"64-(64:{activation})*5-64", scheme, rows=2).layers
    linear = [layer for layer in layers if layer.weight_std is not None]
    return {
        "scheme": scheme,
        "activation": activation,
        "std": [layer.weight_std for layer in linear],
        "signal": [layer.predicted_forward for layer in linear],
        "gradient": [layer.predicted_backward for layer in linear],
    }


def dense(draw: np.random.Generator, activation: str, i: int) -> dict[str, Any]:
    """Return the trace of a network on one batch, and its weights after 20 steps of an optimizer."""
    loss = list(LOSSES)[i % 3]
    optimizer = list(OPTIMIZERS)[(i // 3) % 3]
    inputs, outputs = int(draw.integers(1, 6)), int(draw.integers(2 if loss == "cross_entropy" else 1, 4))
    hidden = [int(n) for n in draw.integers(1, 7, size=int(draw.integers(1, 4)))]
    text = "-".join([str(inputs), *(f"{n}:{activation}" for n in hidden), str(outputs)])
    model = ml.build(text, seed=i, init="normal(0.6)", dtype=torch.float64)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.copy_(torch.from_numpy(draw.normal(size=p.shape)))
    B = int(draw.integers(1, 6))
    x = draw.normal(size=(B, inputs))
    if i % 5 == 0:
        x[0] = 0  # tests kinks: if the biases are 0, the first z is exactly 0
        with torch.no_grad():
            model.get_parameter("linear1.bias").zero_()
    y = draw.integers(0, outputs, B) if loss == "cross_entropy" else draw.normal(size=(B, outputs))
    y = (y > 0).astype(float) if loss == "binary_cross_entropy" else y
    found = ml.trace(model, x, y, loss=loss)
    case = {
        "text": text,
        "activation": activation,
        "widths": [inputs, *hidden, outputs],
        "loss": loss,
        "optimiser": optimizer,
        "rate": RATES[optimizer],
        "x": x.tolist(),
        "y": (np.eye(outputs)[y] if loss == "cross_entropy" else y).tolist(),
        "weights": weights(model),
        "trace": found.to_dict(),
    }
    case["after"] = trained(model, x, y, loss, optimizer, found)
    return case


def weights(model: Any) -> dict[str, Any]:
    return {name: p.detach().numpy().tolist() for name, p in model.state_dict().items()}


def trained(model: Any, x: Any, y: Any, loss: str, optimizer: str, found: Trace) -> dict[str, Any] | None:
    moves = OPTIMIZERS[optimizer](model.parameters())
    for step in range(STEPS):
        moves.zero_grad()
        total = LOSSES[loss](model(torch.from_numpy(x)), torch.from_numpy(y))
        total.backward()
        if step == 0:
            np.testing.assert_allclose(found.loss, total.item(), rtol=1e-12, atol=1e-14)
            for name, p in model.named_parameters():
                layer, _, tensor = name.rpartition(".")
                # torch has no gradient for a step function.
                g = torch.zeros_like(p) if p.grad is None else p.grad
                np.testing.assert_allclose(found[layer].gradients[tensor], g.numpy(), rtol=1e-10, atol=1e-12)
        moves.step()
    # The square of a square may diverge within 20 steps. The result then depends on rounding and cannot be compared.
    wild = any(not torch.isfinite(p).all() or p.abs().max() > 1e3 for p in model.parameters())
    return None if wild else weights(model)


def program(draw: np.random.Generator, name: str, spec: ml.Spec) -> dict[str, Any]:
    """Return the outputs of every layer and ∂L/∂x for a network with other kinds of layer."""
    model = ml.build(spec, seed=11, dtype=torch.float64).eval()
    with torch.no_grad():
        for tensor, p in (*model.named_parameters(), *model.named_buffers()):
            if not tensor.endswith(("running_var", "edges")):
                p.add_(torch.tensor(0.3 * draw.normal(size=tuple(p.shape))))
    x = draw.normal(size=(4, spec.inputs.numeric))
    codes = (
        np.stack([draw.integers(0, n + 1, 4) for n in spec.inputs.categories], 1) if spec.inputs.categories else None
    )
    y = draw.normal(size=(4, spec.d_out))
    found = ml.trace(model, x if codes is None else (x, codes), y, loss="mse")
    return {
        "text": f"{name}: {spec}",
        "spec": spec.to_dict(),
        "tensors": {name: value.tolist() for name, value in to_float64(model).places.items()},
        "x": x.tolist(),
        "codes": None if codes is None else codes.tolist(),
        "y": y.tolist(),
        "output": found.output.tolist(),
        "steps": [{"name": s.name, "y": s.y.tolist(), "dy": s.dy.tolist(), "dx": s.dx.tolist()} for s in found.steps],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
