"""Print the size of an environment with its largest packages: of the interpreter that runs it, or of a site-packages.

    python tests/release/size.py [FOLDER] [--limit MB]

The total is what `du -sm` prints for site-packages: 1 MB is 2^20 bytes. Bytecode is listed separately: pip compiles
all modules when it installs, uv and `pip install --no-compile` leave that to the first import. With `--limit`, the exit
code is 1 if the total exceeds it.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
from collections import Counter
from importlib.metadata import distributions
from pathlib import Path

MB = 2**20
LISTED = 8
"""Number of packages in the table."""


def on_disk(path: Path) -> int:
    """Return the bytes that a file or folder takes on the disk; Windows has no number of blocks."""
    about = path.lstat()
    return getattr(about, "st_blocks", -(-about.st_size // 512)) * 512


def measure(site: Path) -> tuple[Counter[str], int]:
    """Return the bytes by package, and in total. Compiled modules are the package `bytecode`."""
    owners = {
        os.path.normpath(site / file): found.name
        for found in distributions(path=[str(site)])
        for file in found.files or ()
    }
    sizes: Counter[str] = Counter()
    for path in (site, *site.rglob("*")):
        name = "bytecode" if path.suffix == ".pyc" else owners.get(str(path), "folders and other files")
        sizes[name] += on_disk(path)
    return sizes, sum(sizes.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="largest total in MB")
    parser.add_argument("folder", type=Path, nargs="?", default=sysconfig.get_path("purelib"))
    given = parser.parse_args()
    sizes, total = measure(Path(given.folder))
    listed = dict(sizes.most_common(LISTED))
    for name, size in listed.items():
        print(f"{name:24} {size / MB:6.0f} MB")
    rest = total - sum(listed.values())
    print(f"{f'{len(sizes) - len(listed)} others':24} {rest / MB:6.0f} MB\n{'total':24} {total / MB:6.0f} MB")
    if given.limit is not None and total > given.limit * MB:
        sys.exit(f"the environment must have at most {given.limit} MB, got {total / MB:.0f} MB")


if __name__ == "__main__":
    main()
