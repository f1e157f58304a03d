"""What a release is checked for, and that CI only calls the Makefile."""

import re
import shutil
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from scripts.release.dry_run import disagreements, faults, version_stated
from scripts.release.matrix import PYTHONS, RELEASES, pairs

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_version_changelog_and_extension_agree() -> None:
    assert disagreements(tag=f"v{version_stated()}") == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for file in ("aotlens/_version.py", "CHANGELOG.md", "editors/vscode/package.json"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


@pytest.mark.parametrize(
    ("changelog", "expected"),
    [
        ("## Unreleased\n\n- x\n", "CHANGELOG.md begins with `Unreleased`, the version is 0.1.0"),
        ("## 0.1.0 (2026-12-01)\n\n## 0.0.9\n\n- x\n", "CHANGELOG.md says nothing about 0.1.0"),
        ("# Changelog\n", "CHANGELOG.md begins with `nothing`, the version is 0.1.0"),
    ],
)
def test_a_changelog_of_another_version(checkout: Path, changelog: str, expected: str) -> None:
    (checkout / "aotlens" / "_version.py").write_text('__version__ = "0.1.0"\n')
    (checkout / "editors/vscode/package.json").write_text('{"version": "0.1.0"}')
    (checkout / "CHANGELOG.md").write_text(changelog)
    assert disagreements(checkout) == [expected]


def test_another_tag_and_another_extension(checkout: Path) -> None:
    (checkout / "aotlens" / "_version.py").write_text('__version__ = "0.2.0"\n')
    (checkout / "CHANGELOG.md").write_text("## 0.2.0 (2026-12-01)\n\n- x\n")
    (checkout / "editors/vscode/package.json").write_text('{"version": "0.1.0"}')
    assert disagreements(checkout, "v0.1.0") == [
        "editors/vscode/package.json says 0.1.0, the version is 0.2.0",
        "the tag is v0.1.0, the version is 0.2.0",
    ]


def test_artefacts_hold_what_they_should(tmp_path: Path) -> None:
    wheel, sdist = tmp_path / "a.whl", tmp_path / "a.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("aotlens/x.py", "tui/x.py", "tests/x.py", "aotlens-0.1.0.dist-info/METADATA"):
            archive.writestr(name, "")
    assert faults(wheel) == [
        "a.whl differs from aotlens, lsp_server, tui by lsp_server",
        "a.whl differs from aotlens, lsp_server, tui by tests",
    ]
    (tmp_path / "LICENSE").write_text("")
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(tmp_path / "LICENSE", "aotlens-0.1.0/LICENSE")
        archive.add(tmp_path / "LICENSE", "aotlens-0.1.0/aotlens/__pycache__/x.py")
    assert faults(sdist)[0] == "a.tar.gz holds aotlens/__pycache__/x.py"
    assert "a.tar.gz lacks README.md" in faults(sdist)
    assert "a.tar.gz lacks LICENSE" not in faults(sdist)


def test_the_index_is_told_where_the_project_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"Homepage", "Documentation", "Issues", "Changelog"} <= project["urls"].keys()
    assert project["authors"] == [{"name": "aotlens developers"}]
    assert "version" in project["dynamic"]


def test_five_runs_take_every_pair_once() -> None:
    runs = [pairs(turn) for turn in range(7, 7 + len(RELEASES))]
    assert {(pair["python"], pair["torch"]) for run in runs for pair in run} == {
        (python, torch) for python in PYTHONS for torch in RELEASES
    }
    assert all(len({pair["torch"] for pair in run}) == len(PYTHONS) for run in runs)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_only_call_make(workflow: Path) -> None:
    """`make actionlint` checks the rest of them."""
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = re.findall(r"^\s*(?:- )?run: (.*)$", workflow.read_text(), re.MULTILINE)
    for step in steps:
        words = step.partition(" >> ")[0].split()
        targets = [
            word for word in words[1:] if not word.startswith("--") and "=" not in word.partition('"')[0]
        ]
        assert words[0] == "make", step
        assert [word for word in targets if re.fullmatch(r"[a-z-]+", word) and word not in made] == []
