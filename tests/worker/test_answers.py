"""Whole answers on disk: given again while nothing that they depend on has changed, and never otherwise."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from aotlens.model.failure import Failure
from aotlens.worker.answers import AnswerStore, module_folder_key, open_answer_store
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import Answer, TraceOptions, TraceRequest
from tests.command import forked


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnswerStore:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path / "cache"))
    opened = open_answer_store()
    assert opened is not None
    return opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "script.py").write_text("import torch\n")
    (made / "data.txt").write_text("1 2 3\n")
    return made


REQUEST = TraceRequest("script.py", id=1, argv=("x",), options=TraceOptions(gpu="h100"))


def _answer(folder: Path, **changes: object) -> Answer:
    read = (str(folder / "script.py"), str(folder / "data.txt"), str(folder / "absent"), str(folder))
    answer = Answer(1, {"schema": "aotlens.report/1"}, None, "printed\n", 12.0, files=read)
    return replace(answer, **changes)  # type: ignore[arg-type]


def _later() -> float:
    """A moment after every change so far, on the clock of the files."""
    return time.time() + 1


def test_the_same_request_gets_the_same_answer(store: AnswerStore, folder: Path) -> None:
    answer = _answer(folder)
    store.add(REQUEST, answer, _later())
    assert store.find(replace(REQUEST, id=7, time_limit_s=3.0)) == replace(answer, id=7, cached=True)


def test_another_request_gets_none(
    store: AnswerStore, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(REQUEST, _answer(folder), _later())
    others = [
        replace(REQUEST, path="other.py"),
        replace(REQUEST, argv=("y",)),
        replace(REQUEST, qualname="f"),
        replace(REQUEST, options=TraceOptions(gpu="a100")),
    ]
    assert [store.find(request) for request in others] == [None] * len(others)
    monkeypatch.setenv("TORCH_LOGS", "all")
    assert store.find(REQUEST) is None
    monkeypatch.delenv("TORCH_LOGS")
    assert store.find(REQUEST) is not None
    monkeypatch.chdir(tmp_path)
    assert store.find(REQUEST) is None


@pytest.mark.parametrize("change", ["script.py", "data.txt", "absent", "a new file"])
def test_what_was_read_has_changed(store: AnswerStore, folder: Path, change: str) -> None:
    store.add(REQUEST, _answer(folder), _later())
    (folder / change).write_text("other\n")
    assert store.find(REQUEST) is None


@pytest.mark.parametrize(
    ("new", "is_still_valid"),
    [
        ("page.html", True),
        (".script.py.swp", True),
        ("__pycache__/", True),
        ("numpy.py", False),
        ("numpy/", False),
        ("numpy-9.dist-info/", False),
    ],
)
def test_only_what_could_be_imported_counts_in_a_folder_that_imports_list(
    store: AnswerStore, folder: Path, new: str, is_still_valid: bool
) -> None:
    answer = _answer(folder, files=(str(folder / "script.py"), module_folder_key(str(folder))))
    store.add(REQUEST, answer, _later())
    if new.endswith("/"):
        (folder / new).mkdir()
    else:
        (folder / new).write_text("")
    assert (store.find(REQUEST) is not None) == is_still_valid


def test_what_may_not_come_twice_is_not_kept(store: AnswerStore, folder: Path) -> None:
    failure = Failure("user", "a mistake")
    for answer in (
        _answer(folder, outside="it asks the network"),
        _answer(folder, failure=failure),
        _answer(folder, report=None),
        _answer(folder, report={"targets": [{"kernels": [{"error": "took longer than its time limit"}]}]}),
    ):
        store.add(REQUEST, answer, _later())
    store.add(REQUEST, _answer(folder), started=0.0)  # the files have changed since
    assert store.find(REQUEST) is None


def test_what_a_script_reads_is_listed(tmp_path: Path) -> None:
    """In a process of its own, since Python's audit cannot be left again."""
    (tmp_path / "data.txt").write_text("1")
    program = f"""
import os, subprocess, sys
from pathlib import Path
from aotlens.session.script.file_reads import recording_file_reads
os.chdir({str(tmp_path)!r})
with recording_file_reads(True) as reads:
    Path("data.txt").read_text()
    open("written.txt", "w").close()
    os.listdir()
    try:
        open("absent")
    except FileNotFoundError:
        before = reads.outside
    subprocess.run([sys.executable, "-c", ""])
open("data.txt")
print([os.path.relpath(path) for path in reads.paths], [before, reads.outside])
"""
    assert forked("-c", program).out == ("['data.txt', '.', 'absent'] ['', 'it starts other programs']\n")


def test_a_folder_that_imports_list_has_a_key_of_its_own(tmp_path: Path) -> None:
    for name in ("imported", "listed"):
        (tmp_path / name).mkdir()
    (tmp_path / "imported" / "helper.py").write_text("")
    program = f"""
import importlib.metadata, os, sys
from aotlens.session.script.file_reads import recording_file_reads
os.chdir({str(tmp_path)!r})
sys.path.insert(0, os.path.abspath("imported"))
with recording_file_reads(True) as reads:
    import helper
    list(importlib.metadata.distributions(path=sys.path[:1]))
    os.listdir("listed")
folder = os.getcwd() + os.sep
print([path.removeprefix(folder) for path in reads.paths])
"""
    assert forked("-c", program).out == "['imported/', 'imported/helper.py', 'listed']\n"


def test_files_that_safetensors_opens_are_listed(tmp_path: Path) -> None:
    library = tmp_path / "safetensors"
    library.mkdir()
    (library / "__init__.py").write_text(
        "class safe_open:\n    def __init__(self, filename, framework): ...\n"
    )
    program = f"""
import os, sys
from aotlens.session.script.file_reads import recording_file_reads
os.chdir({str(tmp_path)!r})
sys.path.insert(0, os.getcwd())
with recording_file_reads(True) as reads:
    from safetensors import safe_open
    safe_open("model.safetensors", framework="pt")
    safe_open(filename="other.safetensors", framework="pt")
names = [os.path.relpath(path) for path in reads.paths]
print([name for name in names if name.endswith(".safetensors")], repr(reads.outside))
"""
    assert forked("-c", program).out == "['model.safetensors', 'other.safetensors'] ''\n"


def test_pyarrow_counts_once_it_has_read_a_table(tmp_path: Path) -> None:
    """As a library whose memory pool and `memory_map` are those of pyarrow."""
    library = tmp_path / "pyarrow"
    library.mkdir()
    (library / "__init__.py").write_text("from pyarrow.lib import *\ndef memory_map(path): ...\n")
    (library / "lib.py").write_text(
        "class Pool:\n    peak = 128\n    def max_memory(self): return self.peak\n"
        "def default_memory_pool(): return Pool()\n"
    )
    program = f"""
import os, sys
from aotlens.session.script.file_reads import recording_file_reads
os.chdir({str(tmp_path)!r})
sys.path.insert(0, os.getcwd())
with recording_file_reads(True) as reads:
    import pyarrow
    pyarrow.memory_map("mapped.arrow")
with recording_file_reads(True) as later:
    pyarrow.Pool.peak = 384
mapped = [os.path.basename(path) for path in reads.paths if path.endswith(".arrow")]
print(mapped, [reads.outside, later.outside])
"""
    assert forked("-c", program).out == "['mapped.arrow'] ['', 'pyarrow opens files itself']\n"


def test_a_client_that_forgets_leaves_nothing_on_disk(store: AnswerStore) -> None:
    store.store.put("answers", "ab" * 32, {})
    WorkerClient().forget()
    assert store.store.by_kind() == {}
