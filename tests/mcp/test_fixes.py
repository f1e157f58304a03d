"""`apply-fix`: a diff first, then a write, and no write over what has changed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotlens.mcp.session import Session
from aotlens.model import Diagnostic, Edit, Fix, Report, Span, Target
from tests.mcp.fake_client import FakeWorker, answer, error, make_older, results, session_in

SCRIPT = "x = 1\ny = x.t_()\n"
DIFF = "--- a/model.py\n+++ b/model.py\n@@ -1,2 +1,2 @@\n x = 1\n-y = x.t_()\n+y = x.t()\n"
INSPECT: tuple[str, dict[str, Any]] = ("inspect", {"target": "model.py", "run_user_code": True})
FIX: dict[str, Any] = {"report": "trace-1", "fix": 1}


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker(_report("model.py"))


@pytest.fixture
def session(tmp_path: Path, worker: FakeWorker) -> Session:
    (tmp_path / "model.py").write_text(SCRIPT)
    make_older(tmp_path / "model.py")
    return session_in(tmp_path, worker)


def _report(file: str, text: str = "x.t()") -> Report:
    span = Span(file, 2, 4, 2, 10)
    fix = Fix("Use t()", (Edit(span, text),))
    finding = Diagnostic("AL102", "warning", "`x.t_()` changes the caller's strides", span, (), (fix,))
    target = Target(
        "f", "f", "direct", "inference", span, diagnostics=(finding, replace(finding, code="AL1"))
    )
    return Report("2.13.0", "3.11.2", "x", (target,))


def test_a_fix_is_shown_and_then_written(session: Session, tmp_path: Path) -> None:
    inspected, shown = results(session, INSPECT, ("apply-fix", FIX))
    assert inspected.structured_content["fixes"] == [
        {
            "fix": 1,
            "code": "AL102",
            "title": "Use t()",
            "span": {"file": "model.py", "line": 2, "col": 4, "end_line": 2, "end_col": 10},
            "is_tested": False,
        }
    ]
    preview = shown.structured_content
    assert (preview["diff"], preview["written"], preview["files"]) == (DIFF, False, ["model.py"])
    assert (tmp_path / "model.py").read_text() == SCRIPT
    written = answer(session, "apply-fix", **FIX, write=True, token=preview["token"])
    assert (written["written"], written["diff"]) == (True, DIFF)
    assert (tmp_path / "model.py").read_text() == "x = 1\ny = x.t()\n"


def test_a_fix_is_not_written_unless_its_diff_was_shown(session: Session, tmp_path: Path) -> None:
    results(session, INSPECT)
    assert error(session, "apply-fix", **FIX, write=True).startswith("`write` needs the token of a diff")
    assert error(session, "apply-fix", **FIX, write=True, token="0").startswith(
        "the token is of another diff"
    )
    assert error(session, "apply-fix", report="trace-1", fix=2) == "no fix 2 in trace-1; it has 1 to 1"
    assert (tmp_path / "model.py").read_text() == SCRIPT


def test_a_file_that_changed_since_is_not_written(session: Session, tmp_path: Path) -> None:
    _, shown = results(session, INSPECT, ("apply-fix", FIX))
    write = {**FIX, "write": True, "token": shown.structured_content["token"]}
    (tmp_path / "model.py").write_text("x = 2\ny = x.t_()\n")
    assert "was changed after trace-1 was made" in error(session, "apply-fix", **write)
    make_older(tmp_path / "model.py")  # as a tool that restores times leaves it
    assert error(session, "apply-fix", **write).startswith("the token is of another diff")
    assert (tmp_path / "model.py").read_text() == "x = 2\ny = x.t_()\n"


@pytest.mark.parametrize("file", ["/etc/hosts", "../other.py"])
def test_a_file_outside_of_the_root_is_not_shown(session: Session, worker: FakeWorker, file: str) -> None:
    worker.report = _report(file)
    results(session, INSPECT)
    assert "is outside of" in error(session, "apply-fix", **FIX)


def test_an_edit_that_breaks_the_syntax_is_not_shown(session: Session, worker: FakeWorker) -> None:
    worker.report = _report("model.py", "x.t(")
    results(session, INSPECT)
    assert "the edited model.py does not parse" in error(session, "apply-fix", **FIX)
