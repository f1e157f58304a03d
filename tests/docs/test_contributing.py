"""The recipe in CONTRIBUTING.md works as it stands: its rule, its check and its test are run."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aotlens.cli.app import COMMANDS
from aotlens.diagnostics import aliasing, catalogue, diagnose
from aotlens.diagnostics.rules import FAMILIES, RULES, page
from tests.report.diagnostics import test_diagnose

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RULE, CHECK, TEST = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_rule_of_the_recipe_has_a_page() -> None:
    """Its code is the last of its family, so that nobody who follows the recipe needs it."""
    rule = eval(RULE, {"Rule": type(RULES[0])})  # noqa: S307 (our own document)
    assert rule.code == f"AL{aliasing.RULES[0].code[2]}99"
    assert page(rule).startswith(f"# {rule.code}: An argument is returned unchanged\n")


def test_the_check_of_the_recipe_passes_its_own_test(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    exec(CHECK, vars(aliasing) | {"__builtins__": __builtins__}, names)
    (check,) = names.values()
    monkeypatch.setattr(diagnose, "CHECKS", (*catalogue.CHECKS, check))
    namespace: dict[str, Any] = dict(vars(test_diagnose))
    exec(TEST, namespace)
    (name,) = re.findall(r"^def (test_\w+)", TEST, re.MULTILINE)
    run: Callable[[], None] = namespace[name]
    run()


def test_every_family_is_named() -> None:
    listed = re.search(r"The first digit is the family \((.*?)\)", TEXT, re.DOTALL)
    assert listed is not None
    digits = set(re.findall(r"`(\d)`", listed[1]))
    assert digits == set(FAMILIES)


FAMILY_ROW = re.compile(r"^\| `(\d)` [^|\n]+ \| `(\w+)\.py` \| ((?:`[\w/]+\.py`(?:, )?)+) \|$", re.MULTILINE)


def test_the_table_of_families_names_what_there_is() -> None:
    rows = FAMILY_ROW.findall(TEXT)
    assert [digit for digit, _, _ in rows] == list(FAMILIES)
    for digit, module, tests in rows:
        family = import_module(f"aotlens.diagnostics.{module}")
        assert {rule.code[2] for rule in family.RULES} == {digit}
        assert [name for name in re.findall(r"`(.*?)`", tests) if not (ROOT / "tests" / name).exists()] == []


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "SECURITY.md", ".github/pull_request_template.md"])
def test_targets_of_make_exist(document: str) -> None:
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    calls = re.findall(r"(?:^|`)make ([a-z][a-z -]*)", (ROOT / document).read_text(), re.MULTILINE)
    asked = {target for call in calls for target in call.split()}
    assert asked - made == set()


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "SECURITY.md"])
def test_files_that_are_named_exist(document: str) -> None:
    paths = re.findall(r"`((?:aotlens|tests|docs|corpus|scripts)/[\w./-]*\w)`", (ROOT / document).read_text())
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_security_sorts_every_command() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert [command.name for command in COMMANDS if not re.search(rf"\b{command.name}\b", text)] == []
