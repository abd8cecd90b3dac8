"""The table of `make mutants` still applies to the source, and its tests exist."""

from __future__ import annotations

import ast

import pytest

from support.mutant_table import MUTANTS
from support.mutants import ROOT, SOURCE, Mutant, files_of


def test_there_are_enough_mutants_of_every_area() -> None:
    assert len(MUTANTS) >= 80
    assert len(set(MUTANTS)) == len(MUTANTS)
    areas = {mutant.file.split("/")[0] for mutant in MUTANTS}
    assert {"training", "data", "runs", "pages", "nn"} <= areas


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_every_mutant_applies(file: str) -> None:
    source = (ROOT / SOURCE / file).read_text()
    for mutant in (mutant for mutant in MUTANTS if mutant.file == file):
        changed = mutant.mutated(source)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), mutant
        for path in files_of(mutant.tests):
            assert (ROOT / path).exists(), f"{mutant}: {path}"


def test_a_mutant_that_no_longer_applies_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"losses\.py must contain this text exactly once, got 0 times: 'no such'"):
        Mutant("losses.py", "no such", "text", "test_loop.py").mutated("some text")
