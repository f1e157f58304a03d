"""`aotlens diff` as a process: two revisions of a package, and the user's repository left alone."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.command import Ended, aotlens

SCRIPT = """\
import torch
from act import act

# aotlens: example f32[64, 32] grad, f32[32, 32] grad
def step(x, w):
    return act(x @ w).sum()
"""
ACT = "import torch\n\ndef act(x):\n    return torch.relu(x)\n"


def _git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, and a working tree that does not run."""
    (tmp_path / "step.py").write_text(SCRIPT)
    (tmp_path / "act.py").write_text(ACT)
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "act.py").write_text(ACT.replace("relu(x)", "relu(x).exp()"))
    _git(tmp_path, "commit", "-qam", "two")
    (tmp_path / "act.py").write_text("raise SystemExit(3)\n")
    return tmp_path


@pytest.mark.rotates
def test_two_revisions(repository: Path) -> None:
    state = _git(repository, "status", "--porcelain"), (repository / ".git" / "index").read_bytes()
    ended = aotlens(
        "diff",
        "--git",
        "main~1..main",
        "step.py::step",
        "--format",
        "json",
        "--max-saved-bytes",
        "1",
        cwd=repository,
    )
    assert ended.code == 1
    assert "AL801" in ended.err
    data = json.loads(ended.out)
    (line,) = (row for row in data["targets"][0]["lines"] if row["nodes"])
    assert line["after"] == {
        "file": str(repository / "act.py"),
        "number": 4,
        "text": "return torch.relu(x).exp()",
    }
    own = [row for row in line["nodes"] if not row["what"].startswith("recomputed")]
    assert [row["after"]["target"] for row in own] == ["aten.exp.default", "aten.mul.Tensor"]
    assert state == (_git(repository, "status", "--porcelain"), (repository / ".git" / "index").read_bytes())


def test_an_unknown_revision(repository: Path) -> None:
    ended = aotlens("diff", "--git", "main..nope", "step.py", cwd=repository)
    assert ended == Ended(2, "", f"aotlens: error: git knows no revision `nope` in {repository}\n")


def test_files_that_are_no_reports(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    assert aotlens("diff", "a.json", cwd=tmp_path).code == 2
    ended = aotlens("diff", "a.json", "b.json", cwd=tmp_path)
    assert ended.code == 2
    assert ended.err.startswith("aotlens: error: a.json: not a report")


@pytest.mark.rotates
def test_a_page_names_both_revisions(repository: Path) -> None:
    ended = aotlens("diff", "--git", "main~1..main", "step.py::step", "--format", "html", cwd=repository)
    assert ended.code == 0, ended.err
    assert "<title>main~1 → main: aotlens</title>" in ended.out
    assert "aten.exp.default" in ended.out
