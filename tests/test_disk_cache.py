"""The store on disk: what is put comes back, what others could have written or damaged does not."""

import logging
import os
from pathlib import Path

import pytest

from aotlens.disk_cache import Store, cache_folder, digest, open_store

KEY = digest("key")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path / "cache"))
    opened = open_store()
    assert opened is not None
    return opened


def _entry(store: Store) -> Path:
    (path,) = (path for path in store.folder.rglob("*") if path.is_file())
    return path


def test_what_is_put_comes_back(store: Store) -> None:
    value = {"text": "π\udc80"[:1], "numbers": [1, 2.5, None], "": True}
    store.put("kind", KEY, value)
    assert store.get("kind", KEY) == value
    assert store.get("other", KEY) is None
    assert store.get("kind", digest("other")) is None


def test_only_the_user_can_read_it(store: Store) -> None:
    store.put("kind", KEY, 1)
    assert {path.stat().st_mode & 0o077 for path in (store.folder, *store.folder.rglob("*"))} == {0}


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "older", "moved", "empty"])
def test_what_is_damaged_is_as_if_it_were_not_there(
    store: Store, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("kind", KEY, {"value": "x" * 1000})
    path = _entry(store)
    data = path.read_bytes()
    key = digest("elsewhere") if damage == "moved" else KEY
    if damage == "moved":
        path = store.folder / "kind" / key[:2] / key
        path.parent.mkdir(parents=True)
    path.write_bytes(
        {
            "cut": data[:-5],
            "flipped": data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
            "foreign": b"\x80\x04\x95 a pickle",
            "older": data.replace(b"aotlens-cache/1", b"aotlens-cache/0"),
            "moved": data,
            "empty": b"",
        }[damage]
    )
    with caplog.at_level(logging.DEBUG, logger="aotlens.disk_cache"):
        assert store.get("kind", key) is None
    assert len(caplog.records) == 1
    store.put("kind", key, 2)
    assert store.get("kind", key) == 2


def test_a_link_is_not_followed(store: Store, tmp_path: Path) -> None:
    store.put("kind", KEY, 1)
    path = _entry(store)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.get("kind", KEY) is None


def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path))
    assert open_store() is None


def test_a_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert open_store() is None


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert open_store() is None


def test_a_full_disk_costs_the_entry_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("kind", KEY, 1)

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    store.put("kind", digest("next"), 2)
    assert store.get("kind", digest("next")) is None
    assert _entry(store).name == KEY  # and no half of one


def test_what_was_not_used_for_longest_goes_first(store: Store) -> None:
    small = Store(store.folder, limit_bytes=6000)
    keys = [digest(str(number)) for number in range(8)]
    for age, key in enumerate(keys):
        small.put("kind", key, os.urandom(400).hex())  # about 600 bytes each
        os.utime(small.folder / "kind" / key[:2] / key, (age, age))
    assert small.get("kind", keys[0]) is not None  # used just now
    for key in map(digest, "abc"):
        small.put("kind", key, os.urandom(400).hex())
    assert small.size_bytes() <= 6000
    assert small.get("kind", keys[0]) is not None
    assert small.get("kind", keys[1]) is None
    assert small.get("kind", digest("c")) is not None


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", "")
    assert cache_folder() is None
    monkeypatch.delenv("AOTLENS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/aotlens")


def test_a_digest_tells_where_texts_end() -> None:
    assert digest("ab", "c") != digest("a", "bc")
