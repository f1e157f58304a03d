"""The documents agree with the code: links lead somewhere, commands exist, tables come from results."""

import re
from pathlib import Path

import pytest

from aotlens.cli.app import COMMANDS
from benchmarks.tables import END, START, render_results
from lsp_server.commands import COMMANDS as SERVER_COMMANDS

ROOT = Path(__file__).parents[2]
FRONT = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
)
DOCUMENTS = (*(ROOT / name for name in FRONT), *sorted((ROOT / "docs").rglob("*.md")))

LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
"""`kernel[grid](x)` in code is no link."""
COMMAND = re.compile(r"(?:[`$] ?|output[^:\n]*: )aotlens ([a-z]+)")
EXAMPLE = re.compile(r"examples/\w+\.py(?:::(\w+))?")


def names(paths: tuple[Path, ...]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


@pytest.mark.parametrize("document", names(DOCUMENTS))
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    text = CODE.sub("", path.read_text())
    broken = [link for link in LINK.findall(text) if not (path.parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize("document", names(DOCUMENTS))
def test_commands_exist(document: str) -> None:
    known = {command.name for command in COMMANDS}
    assert set(COMMAND.findall((ROOT / document).read_text())) - known == set()


def test_every_command_of_the_language_server_is_described() -> None:
    section = (ROOT / "docs" / "editors.md").read_text().partition("## For other clients")[2]
    described = set(re.findall(r"`(aotlens\.\w+)", section))
    assert SERVER_COMMANDS.keys() - described == set()


@pytest.mark.parametrize("document", names(DOCUMENTS))
def test_examples_exist(document: str) -> None:
    missing = []
    for match in EXAMPLE.finditer((ROOT / document).read_text()):
        path = ROOT / match.group().partition("::")[0]
        defined = path.exists() and (
            match[1] is None or re.search(rf"^(def|class) {match[1]}\b", path.read_text(), re.M)
        )
        if not defined:
            missing.append(match.group())
    assert missing == []


def test_the_benchmark_tables_come_from_the_results() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    shown = text.partition(START)[2].partition(END)[0]
    assert shown.strip() == render_results().strip()


def test_all_pages_are_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()
