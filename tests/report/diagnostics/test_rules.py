"""Every code has a page, every page is current, and the catalogue covers what is reported."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from aotlens.diagnostics import catalogue, failures
from aotlens.diagnostics.rules import FAMILIES, RULES, Rule, page, pages, rule
from aotlens.errors import UserError
from aotlens.model import eager
from aotlens.model.failure import FailureKind

FOLDER = Path(__file__).parents[3] / "docs" / "rules"


def test_pages_are_current() -> None:
    """Written by `python -m aotlens.diagnostics.rules docs/rules`."""
    published = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert published == pages()


def test_codes_are_unique_sorted_and_in_a_family() -> None:
    codes = [entry.code for entry in RULES]
    assert codes == sorted(set(codes))
    assert {code[2] for code in codes} == set(FAMILIES)


def test_each_family_has_a_module_with_its_rules() -> None:
    digits = [{rule.code[2] for rule in family.RULES} for family in catalogue.MODULES]
    assert digits == [{digit} for digit in FAMILIES]


def test_every_reported_code_has_a_rule() -> None:
    modules = (*Path(catalogue.__file__).parent.glob("*.py"), Path(eager.__file__))
    source = "".join(path.read_text(encoding="utf-8") for path in modules)
    assert set(re.findall(r"AL\d{3}", source)) == {entry.code for entry in RULES}


def test_every_kind_of_failure_has_a_code() -> None:
    assert set(failures.FAILURE_CODES) == set(get_args(FailureKind))


def test_a_page() -> None:
    assert page(rule("al102")) == (FOLDER / "AL102.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("code", "near"), [("AL109", "AL105"), ("AL9O1", "AL91\\d")])
def test_an_unknown_code_offers_near_ones(code: str, near: str) -> None:
    with pytest.raises(UserError, match=f"no rule '{code}'; there is .*{near}"):
        rule(code)


@pytest.mark.parametrize(
    "entry", [entry for entry in RULES if entry.code != "AL901"], ids=lambda entry: entry.code
)
def test_examples_are_python(entry: Rule) -> None:
    for code in (entry.example, entry.better):
        if not code.startswith("$"):
            ast.parse(code)
