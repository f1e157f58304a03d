"""Sizes of functions, files, folders and of the engine: a reader must find each room small enough to know.

A change that needs a larger engine raises the number here in a commit of its own, with the reason.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("aotlens", "lsp_server", "tui")

MOST_LINES = {"a function": 60, "a file": 400}
MOST_FILES = 25
"""In one folder, without `__init__.py`."""
LONGER_FILES = {"aotlens/model/fit.py": 430}
"""It says itself why it is one file."""

NOT_THE_ENGINE = (
    *("cli", "mcp", "session", "worker", "trace", "check", "verify", "fit", "fixes", "forecast"),
    *("model", "build", "diagnostics", "compare", "view", "render", "gpu_emulation", "codegen/gpu"),
)
"""Front ends, reports and what else uses the engine, or describes what it did."""
ENGINE_LINES = {"capture": 11_700, "": 43_500}
"""The largest number of lines by package of `aotlens`; the empty name is the whole engine."""


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def lines_of(file: Path) -> int:
    return len(file.read_text().splitlines())


def engine_files() -> list[Path]:
    apart = tuple(ROOT / "aotlens" / name for name in NOT_THE_ENGINE)
    return [file for file in sources("aotlens") if not any(file.is_relative_to(folder) for folder in apart)]


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_and_files_are_short(package: str) -> None:
    longer = []
    for file in sources(package):
        name, text = file.relative_to(ROOT).as_posix(), file.read_text()
        if lines_of(file) > LONGER_FILES.get(name, MOST_LINES["a file"]):
            longer.append(name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > MOST_LINES["a function"]:
                    longer.append(f"{name}: {node.name}")
    assert not longer


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_are_small(package: str) -> None:
    folders = {file.parent for file in sources(package)}
    files = {folder: len(list(folder.glob("[!_]*.py"))) for folder in folders}
    assert not {folder: count for folder, count in files.items() if count > MOST_FILES}


@pytest.mark.parametrize("package", ENGINE_LINES)
def test_the_engine_does_not_grow(package: str) -> None:
    files = [file for file in engine_files() if file.is_relative_to(ROOT / "aotlens" / package)]
    assert sum(map(lines_of, files)) <= ENGINE_LINES[package]


def test_every_package_that_is_apart_exists() -> None:
    assert all((ROOT / "aotlens" / name).is_dir() for name in NOT_THE_ENGINE)
