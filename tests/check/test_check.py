"""`aotlens check` as a process, on a folder in which much is wrong."""

import json
from pathlib import Path

import pytest

from aotlens.check.files import find_files
from aotlens.errors import TargetError
from tests.command import Ended, aotlens

NET = """\
import torch
print("imported")

# aotlens: example f32[64, 32] grad, f32[32, 32] grad
def step(x, weight):
    return torch.sin(x @ weight).sum()  # aotlens: ignore[AL301]

# aotlens: example f32[2, 3]
def turn(x):
    x.t_()  # aotlens: ignore[AL103]
    return x

if __name__ == "__main__":
    raise SystemExit("the main part ran")
"""
CRASH = """\
import os

# aotlens: example f32[3]
def ends(x):
    os.abort()

# aotlens: example f32[2, 3]
def turn(x):
    x.t_()
    return x
"""
SETTINGS = '[tool.aotlens.per-target."net.py::step"]\nmax-saved-bytes = "1 KiB"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check")
    files = {
        "net.py": NET,
        "crash.py": CRASH,
        "broken.py": "# aotlens: example f32[3]\ndef f(:\n",
        "plain.py": "def f(x):\n    return x\n",
        "pyproject.toml": SETTINGS,
        ".venv/pyvenv.cfg": "",
        ".venv/other.py": CRASH,
    }
    for name, text in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)
    return path


@pytest.fixture(scope="module")
def ended(folder: Path) -> Ended:
    return aotlens("check", ".", "--format", "json", cwd=folder)


def test_one_file_that_fails_does_not_stop_the_others(ended: Ended) -> None:
    data = json.loads(ended.out)
    findings = [(row["code"], row["file"], row["span"]["line"]) for row in data["findings"]]
    assert findings == [
        ("AL901", "broken.py", 2),
        ("AL909", "crash.py", 5),
        ("AL103", "crash.py", 9),
        ("AL801", "net.py", 5),
        ("AL804", "net.py", 6),
    ]
    assert [(row["code"], row["file"]) for row in data["hidden"]] == [("AL103", "net.py")]
    assert [row["qualname"] for row in data["targets"]] == ["turn", "step", "turn"]


def test_the_exit_code_and_what_goes_to_stderr(ended: Ended) -> None:
    assert ended.code == 2
    assert ended.err == (
        "aotlens: 5 findings (3 errors, 2 warnings) in 3 targets of 3 files; 1 hidden by comments\n"
    )


def test_nothing_to_check_is_fine(folder: Path) -> None:
    ended = aotlens("check", "plain.py", cwd=folder)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("aotlens: nothing to check")


def test_a_path_that_is_not_there(folder: Path) -> None:
    ended = aotlens("check", "plain.py", "nothing.py", cwd=folder)
    assert ended == Ended(2, "", "aotlens: error: no such file or folder: nothing.py\n")


def test_a_code_that_is_none(folder: Path) -> None:
    ended = aotlens("check", "plain.py", "--select", "AL1,AL109", cwd=folder)
    assert (ended.code, ended.err) == (
        2,
        "aotlens: error: --select: no diagnostic `AL109`; there is AL105, AL104, AL103\n",
    )


def test_settings_for_a_target_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.aotlens.per-target."net.py::stop"]\nignore = ["AL1"]\n')
    (tmp_path / "net.py").write_text(NET)
    with pytest.raises(
        TargetError, match=r"\[tool.aotlens.per-target.\"net.py::stop\"\]: .* no `stop`; it has `step`"
    ):
        find_files([str(tmp_path)])
