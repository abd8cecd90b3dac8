"""The modules of `docs/hooks`, which is not a package."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

sys.path.insert(0, str(DOCS / "hooks"))

import detector_pages  # noqa: E402
import experiment_pages  # noqa: E402
import notebooks  # noqa: E402
import page_examples  # noqa: E402
import reference  # noqa: E402

__all__ = ["DOCS", "ROOT", "detector_pages", "experiment_pages", "notebooks", "page_examples", "reference"]
