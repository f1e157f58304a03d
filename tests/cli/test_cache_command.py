"""`aotlens cache`: what is kept, and how to be rid of it."""

from pathlib import Path

import pytest

from aotlens.disk_cache import digest, open_store
from tests.command import aotlens


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one answer and two kernels."""
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path / "kept"))
    store = open_store()
    assert store is not None
    store.put("answers", digest("a"), {"text": "x" * 4000})
    for name in ("b", "c"):
        store.put("gpu-kernels", digest(name), {})
    return tmp_path / "kept"


def test_info_counts_by_kind(folder: Path) -> None:
    ended = aotlens("cache")
    assert ended.code == 0
    first, second, *rows = ended.out.splitlines()
    assert first == f"{folder}  (AOTLENS_CACHE_DIR)"
    assert second.startswith("3 files, ")
    assert [row.split()[:2] for row in rows] == [["gpu-kernels", "2"], ["answers", "1"]]


def test_clear_removes_all(folder: Path) -> None:
    ended = aotlens("cache", "clear")
    assert (ended.code, ended.out) == (0, "")
    assert "removed 3 files" in ended.err
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert aotlens("cache", "info").out.splitlines()[1].startswith("no files, 0 B of at most 1.0 GiB")


def test_where_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", "")
    ended = aotlens("cache")
    assert ended.code == 2
    assert "nothing is stored: AOTLENS_CACHE_DIR is empty" in ended.err
