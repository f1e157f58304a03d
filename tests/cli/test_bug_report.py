"""`aotlens doctor --report`: a bug report from what is installed, a failure, and the smallest program."""

import json
from pathlib import Path

import pytest

from aotlens.cli import bug_report
from aotlens.cli.bug_report import BugReport, Program, json_file, written
from aotlens.model.codec import decode
from aotlens.model.failure import Failure
from tests.command import Ended, aotlens
from tests.report.sample import sample_report

SCRIPT = """\
import torch


# aotlens: example f32[3, 4] grad
def pear_price(pears):
    scaled = pears.sin()
    return scaled * (2 if type(pears) is torch.Tensor else 3)
"""


def test_without_a_target_it_says_what_is_installed() -> None:
    ended = aotlens("doctor", "--report")
    assert ended.code == 0
    titles = [line for line in ended.out.splitlines() if line.startswith("#")]
    assert titles == ["# aotlens bug report", "## Installed", "## Settings", "## Program"]
    assert "ok       aotlens" in ended.out
    assert "AOTLENS_CACHE_DIR=" in ended.out


@pytest.mark.rotates
def test_a_target_that_differs(tmp_path: Path) -> None:
    (tmp_path / "pears.py").write_text(SCRIPT)
    ended = aotlens("doctor", "--report", "pears.py", "--backend", "eager", "--anonymous", cwd=tmp_path)
    assert ended.code == 0, ended.err
    compared = ended.out.partition("## Compared with eager")[2].partition("## Program")[0]
    assert "differs       name1: value of out" in compared
    assert "exit code 1" in compared
    program = ended.out.partition("```python\n")[2].partition("\n```")[0]
    assert program == (
        "import torch\n\n\n\ndef name1(name2):\n    name3 = name2.sin()\n"
        "    return name3 * (2 if type(name2) is torch.Tensor else 3)"
    )
    assert "pear" not in ended.out
    assert str(tmp_path) not in ended.out
    report = decode(json.loads(ended.out.partition("```json\n")[2].partition("\n```")[0]))
    assert [target.name for target in report.targets] == ["name1"]


def test_a_target_belongs_to_a_report() -> None:
    message = "aotlens: error: a TARGET and --anonymous belong to a bug report: add --report\n"
    assert aotlens("doctor", "x.py") == Ended(2, "", message)


def test_a_large_report_goes_beside_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug_report, "LARGEST_INLINE", 10)
    failure = Failure("internal", "it broke", "Traceback", file=None)
    bug = BugReport("rows", {}, "aotlens x.py", "", failure, Program("", "none"), sample_report())
    text, beside = written(bug, "bug.md", anonymous=False)
    assert beside is not None
    assert decode(json.loads(beside)) == sample_report()
    assert "Attached as `bug.json`" in text
    assert "internal: it broke" in text
    assert json_file("bug.md") == Path("bug.json")
    assert "`-o FILE` writes it beside the text" in written(bug, None, anonymous=False)[0]
