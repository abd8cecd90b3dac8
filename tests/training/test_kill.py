"""R1 for complete training runs: runs that are killed at any point resume to a bit-identical result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import kill_runs
from support.long_tests import FULL, memory_folder


@pytest.mark.parametrize("engine", ["fused", "numpy"] if FULL else ["fused"])
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(engine: str, tried) -> None:
    points, times = (400, 200) if FULL else (25, 15)
    with memory_folder() as folder:
        script = Path(kill_runs.__file__)
        command = [sys.executable, script, folder, str(points), str(times), engine]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["at points of saves"] >= min(points, 25)
    assert found["at random times"] == times
    assert found["resumed"] >= 10  # the others were killed before there was anything to resume
    for name, count in found.items():
        tried(f"R1: training killed {name}" if name != "resumed" else "R1: of them resumed", count)
