"""`aotlens inspect --gpu` as a process: the code of its kernels, the cache, and how it is stopped."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from aotlens.disk_cache import open_store
from aotlens.worker.client import WorkerClient
from aotlens.worker.process import tree
from aotlens.worker.protocol import TraceOptions, TraceRequest
from tests.command import ROOT, aotlens, python
from tests.forked import worker_command

SCRIPT = """\
from pathlib import Path
import torch

def scale(x, factor):
    return (x * factor).softmax(-1).sum()

factor = float((Path(__file__).parent / "factor.txt").read_text())
torch.compile(scale)(torch.randn(64, 128, requires_grad=True), factor).backward()
"""
LIMIT_S = 100.0


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "factor.txt").write_text("0.5")
    path = tmp_path / "scale.py"
    path.write_text(SCRIPT)
    old = time.time() - 60  # what was written while a trace ran would not be kept
    for file in (path, tmp_path / "factor.txt"):
        os.utime(file, (old, old))
    return path


@pytest.mark.rotates
def test_the_second_time_nothing_is_traced(script: Path) -> None:
    words = ("inspect", script, "--gpu", "a100", "--text", "ptx,sass")
    first, again = aotlens(*words), aotlens(*words)
    assert (first.code, again.code) == (0, 0)
    assert again.out == first.out
    assert ", forward, sm_80, ptx\n" in first.out
    assert ", backward, sm_80, sass\n" in first.out
    assert (first.err, again.err) == (
        "",
        "aotlens: nothing has changed since the last trace; --fresh retraces\n",
    )
    store = open_store()
    assert store is not None
    (path,) = store.folder.glob("answers/*/*")
    entry: Any = store.get("answers", path.name)
    assert entry["read"].keys() == {str(script), str(script.parent / "factor.txt")}


@pytest.mark.rotates
def test_a_script_that_is_traced_each_time_says_why(script: Path) -> None:
    script.write_text("import os\nos.system('true')\n" + script.read_text())
    first, again = (aotlens("inspect", script) for _ in range(2))
    assert (first.code, again.code) == (0, 0)
    assert first.err == again.err == "aotlens: the script is retraced each time: it starts other programs\n"


@pytest.mark.rotates
def test_a_damaged_entry_is_traced_again_and_told_to_who_asks(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTLENS_LOG", "debug")
    words = ("inspect", script)
    first = aotlens(*words)
    store = open_store()
    assert store is not None
    (path,) = store.folder.glob("answers/*/*")
    path.write_bytes(path.read_bytes()[:-10])
    again = aotlens(*words)
    assert (first.code, again.code) == (0, 0)
    assert again.err == f"aotlens.disk_cache: ignored the entry {path}: it is cut off or damaged\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--text", "ptx"), "--text shows kernels for a GPU: name one with --gpu h100, sm_90, …"),
        (("--gpu", "h1oo"), "unknown GPU 'h1oo'; nearest: H100 SXM"),
        (("--gpu", "mi300x"), "GPU 'mi300x' is AMD's: code is generated for NVIDIA GPUs only"),
        (("--gpu", "h100", "--text", "asm"), "unknown kernel language 'asm'; known are triton, ttir"),
    ],
)
def test_mistakes_show_before_anything_is_traced(script: Path, words: tuple[str, ...], message: str) -> None:
    ended = aotlens("inspect", script, *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"aotlens: error: {message}")


def test_without_triton_it_is_said_how_to_install_it(script: Path) -> None:
    program = f"""
import sys
sys.modules["triton"] = None
from aotlens.cli import main
sys.exit(main(["inspect", {str(script)!r}, "--gpu", "h100"]))
"""
    ended = python("-c", program)
    assert (ended.code, ended.out) == (2, "")
    assert "needs Triton, which is not installed; install it with pip install 'aotlens[gpu]'" in ended.err


def _until(happens: Callable[[], bool], what: str) -> None:
    last = time.monotonic() + LIMIT_S
    while not happens():
        assert time.monotonic() < last, f"waited {LIMIT_S} s until {what}"
        time.sleep(0.02)


def _alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}/exe").exists()}  # a zombie has none


class _Watch:
    """The processes below one, seen while kernels compile."""

    def __init__(self, pid: int, above: int) -> None:
        self._pid = pid
        self._above = above
        """Processes between it and the children that compile."""
        self.seen: set[int] = set()

    def compiles(self) -> bool:
        pids = set(tree(self._pid))
        self.seen |= pids
        return len(pids) > self._above

    def all_end(self) -> None:
        _until(lambda: not _alive(self.seen - {os.getpid(), self._pid}), "every process has ended")


@pytest.mark.rotates
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_process(script: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "aotlens", "inspect", str(script), "--gpu", "h100"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as running:
        watch = _Watch(running.pid, above=3)  # the command, the server, the trace
        _until(watch.compiles, "kernels compile")
        running.send_signal(number)
        assert running.wait(LIMIT_S) == (130 if number == signal.SIGINT else -number)
    watch.all_end()


@pytest.mark.rotates
def test_a_cancelled_trace_leaves_no_process(script: Path) -> None:
    with WorkerClient(command=worker_command()) as client:
        job = client.submit(TraceRequest(str(script), options=TraceOptions(gpu="h100")))
        _until(lambda: client.hello is not None, "the worker is warm")
        assert client.hello is not None
        watch = _Watch(client.hello.pid, above=2)
        _until(watch.compiles, "kernels compile")
        job.cancel()
        failure = job.future.result(LIMIT_S).failure
        assert failure is not None
        assert failure.kind == "cancelled"
        watch.all_end()
