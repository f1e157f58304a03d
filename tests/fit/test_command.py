"""`aotlens fit` on a memory snapshot."""

from pathlib import Path

from tests.command import aotlens
from tests.fit.snapshot_files import failed_step, write


def test_who_held_memory_at_a_failure(tmp_path: Path) -> None:
    ended = aotlens("fit", write(tmp_path / "step.pickle", failed_step()))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("out of memory on device 0: 5.0 MiB were asked for at /job/model.py:41")


def test_a_snapshot_without_memory_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "empty.pickle", {"segments": [], "device_traces": [[]]})
    ended = aotlens("fit", path)
    assert (ended.code, ended.out) == (2, "")
    assert "no device holds memory in it, and no allocation failed" in ended.err
