"""The hook, run by pre-commit itself on files that are staged."""

import pytest

from tests.command import ROOT, python


@pytest.mark.rotates
def test_pre_commit_runs_the_hook() -> None:
    pytest.importorskip("pre_commit")
    ended = python(ROOT / "scripts" / "try_hook.py")
    assert (ended.code, ended.err) == (0, "")
    over, under = ended.out.split("$ pre-commit run")[1:]
    assert "AL801 error: `step`(f32[256, 64], f32[64, 64]) saves 64.0 KiB" in over
    assert under.splitlines()[1].endswith("Passed")
