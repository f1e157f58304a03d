"""The table of unsupported cases and the code that raises them say the same."""

import ast
import string
from collections.abc import Iterator

import pytest

from aotlens.errors import RejectedAssertionError, RejectedRuntimeError, UnsupportedError
from aotlens.unsupported import CASES, SUBJECTS, Case, unsupported
from scripts.docs.unsupported_page import PAGE, page
from tests.import_graph import ROOT, Module, modules
from tests.programs import PROGRAMS

ERRORS = {error.__name__ for error in (UnsupportedError, RejectedRuntimeError, RejectedAssertionError)}


def _engine() -> Iterator[Module]:
    for module in modules().values():
        if module.name.startswith("aotlens.") and not module.name.startswith("aotlens.unsupported"):
            yield module


def _calls(module: Module, *names: str) -> Iterator[ast.Call]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def _fields(case: Case) -> set[str]:
    parts = (*string.Formatter().parse(case.text), *string.Formatter().parse(case.advice))
    return {name for _, name, _, _ in parts if name is not None}


def _subclasses() -> Iterator[str]:
    """Yield the classes of single stages, by which a caller catches a case."""
    for module in _engine():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and ERRORS & {ast.unparse(base) for base in node.bases}:
                yield node.name


@pytest.mark.rotates
def test_only_the_table_makes_these_errors() -> None:
    kinds = ERRORS | set(_subclasses())
    made = [module.location(call.lineno) for module in _engine() for call in _calls(module, *kinds)]
    assert made == []


@pytest.mark.rotates
def test_every_case_that_is_raised_is_in_the_table_with_its_values() -> None:
    wrong = []
    for module in _engine():
        for call in _calls(module, "unsupported"):
            named = call.args[0]
            if not isinstance(named, ast.Constant):
                continue  # a row of a table that names the case; the next test finds the row
            case = CASES.get(str(named.value))
            values = {keyword.arg for keyword in call.keywords}
            if case is None or not (None in values or values == _fields(case)):
                wrong.append(f"{module.location(call.lineno)} {ast.unparse(call)}")
    assert wrong == []


@pytest.mark.rotates
def test_every_case_is_raised() -> None:
    named = {
        node.value
        for module in _engine()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert sorted(CASES.keys() - named) == []


def test_names_are_unique() -> None:
    assert len(CASES) == sum(len(subject.CASES) for subject in SUBJECTS)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_an_error_names_the_case_and_the_way_out(case: Case) -> None:
    error = unsupported(case.name, None, **{name: f"<{name}>" for name in _fields(case)})
    assert type(error) is case.error
    assert error.name == case.name
    assert str(error).startswith("not supported: ")
    assert "{" not in str(error)
    assert error.hint in str(error)


def test_programs_name_cases() -> None:
    """Programs that must be unsupported name their case; those that fail in eager too say the phrase."""
    named = {program.unsupported for program in PROGRAMS if program.unsupported is not None}
    assert {name for name in named if name not in CASES} <= {"leaf"}


def test_the_page_is_current() -> None:
    """Written by `python -m scripts.docs.unsupported_page`."""
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page()
