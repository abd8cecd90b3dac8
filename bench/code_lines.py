"""Count lines of code. Docstrings, comments and blank lines are not counted.

    python bench/code_lines.py             one number per package of src/multilayer, and the sum
    python bench/code_lines.py FOLDER …    the same for other folders

A string used as a statement counts as a docstring: of a module, a class, a function or a variable.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Count the lines of a Python file that contain code.

    >>> code_lines('"What it is."\\n\\nx = 1  # why\\n# a comment\\ny = [\\n    2,\\n]\\n')
    4
    """
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def main(folders: list[str]) -> None:
    for folder in map(Path, folders or ["src/multilayer"]):
        counts: Counter[str] = Counter()
        for path in sorted(folder.rglob("*.py")):
            counts[path.relative_to(folder).parts[0]] += code_lines(path.read_text(encoding="utf-8"))
        for name, count in sorted(counts.items()):
            print(f"{count:7,}  {folder / name}")
        print(f"{counts.total():7,}  {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
