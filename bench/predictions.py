"""Compare the predicted time of a training step with the measured time.

For each network, PyTorch is calibrated like in `mlp cost --measure`, on test layers and not on the network itself. Then
a step is timed at three batch sizes. Other processes can affect the two differently, so the load is printed too.

    python bench/predictions.py [--json FILE] [--threads N]
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch

from multilayer.core import machine
from multilayer.costs import cost
from multilayer.costs.roofline import predict
from multilayer.costs.torch_speed import calibrate, step_seconds
from multilayer.spec import Spec

REQUIRED = 0.3
BATCHES = (1, 32, 512)
NETWORKS = (
    "784-256-128-10",
    "64-64-64-10",
    "784-1024-1024-10",
    "16-kan(32)-kan(8)-1",
    "64-kan(64, basis=rbf)-10",
    "13-columns(pbld)-128-1",
    "13-columns(plr)-128-1",
    "100-columns(plr)-256-10",
    "13-columns(piecewise)-128-1",
    "13+cat(3, 12, 40)-columns(pbld)-scale-(linear(128, scale=tangent):blend(selu):dropout(0.15))*2-1",
    "64-swiglu(256)-64-10",
    "256-geglu(512)-256-10",
    "64-128:batchnorm:gelu-10",
    "784-(256:batchnorm:gelu)*3-10",
    "64-256:rmsnorm:silu-10",
    "20-384:none-[layernorm-768:gelu:dropout(0.1)-384]*3-10",
    "64-maxout(64, 4)-10",
    "64-128:prelu-128:mish-10",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    here = machine.measure()
    results: list[dict[str, float | str | int]] = []
    print(f"{'network':<60} {'rows':>5} {'predicted':>10} {'measured':>10} {'ratio':>6}   (µs per step)")
    for text in NETWORKS:
        spec = Spec.parse(text)
        known = calibrate(spec, here, optimizer="adam", loss="auto")
        for batch in BATCHES:
            if batch == 1 and "batchnorm" in text:
                continue
            predicted = predict(cost(spec, batch=batch), here, threads=options.threads, calibration=known).seconds
            measured = step_seconds(spec, batch=batch, optimizer="adam", loss="auto")
            ratio = predicted / measured
            results.append({"network": text, "batch": batch, "us": 1e6 * measured, "ratio": ratio})
            print(f"{text[:60]:<60} {batch:>5} {1e6 * predicted:>10.0f} {1e6 * measured:>10.0f} {ratio:>6.2f}")
    near = sum(abs(float(r["ratio"]) - 1) <= REQUIRED for r in results)
    about = {
        "torch": torch.__version__,
        "cpu": here.processor,
        "threads": options.threads,
        "load": os.getloadavg()[0],
    }
    print(f"\n{near} of {len(results)} within {100 * REQUIRED:.0f} %, load {about['load']:.1f}")
    if options.json:
        text = {"question": "predictions", "required": REQUIRED, "results": results, "about": about}
        options.json.write_text(json.dumps(text, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
