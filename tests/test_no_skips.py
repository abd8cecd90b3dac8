"""`make test` runs pytest with --no-skips: a skipped test is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SKIPS = {
    "test_by_call.py": "import pytest\ndef test_a(): pytest.skip('not here')\n",
    "test_by_mark.py": "import pytest\n@pytest.mark.skipif(True, reason='not here')\ndef test_a(): pass\n",
    "test_module.py": "import pytest\npytest.skip('not here', allow_module_level=True)\n",
}


def last_line(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    done = subprocess.run(
        [*command, *options, "."],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip().splitlines()[-1]


def test_a_skipped_test_fails_under_no_skips(tmp_path: Path) -> None:
    (tmp_path / "support").mkdir()
    for name in ("conftest.py", "support/long_tests.py"):
        (tmp_path / name).write_text((ROOT / "tests" / name).read_text())
    for name, text in SKIPS.items():
        (tmp_path / name).write_text(text)
    assert last_line(tmp_path).startswith("3 skipped")
    assert last_line(tmp_path, "--no-skips").startswith("1 failed, 2 errors")


def test_make_test_allows_no_skips() -> None:
    assert "pytest -q -n $(WORKERS) --no-skips" in (ROOT / "Makefile").read_text()
