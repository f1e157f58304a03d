"""Count and name the processes that a script starts, because what they compile is not observed.

Invariant: starting a process works as without us; torch's own compile processes are ignored.

| started by | kind |
|---|---|
| `DataLoader(num_workers=4)` | data loader |
| `multiprocessing.Process`, `torch.multiprocessing.spawn`, a pool | multiprocessing |
| `subprocess` with Python or a launcher such as `torchrun` | command |
| `os.fork` | fork |
"""

import inspect
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from aotlens.capture.provenance.frames import is_first_party_file
from aotlens.dynamo.spans import statement_span
from aotlens.model.dynamo import ProcessKind, StartedProcesses
from aotlens.model.source import Span

__all__ = ["ProcessLog"]

LAUNCHERS = ("python", "pypy", "torchrun", "accelerate", "deepspeed", "mpirun")
"""Prefixes of programs that run a script."""
TORCHS = ("/torch/_inductor/", "/triton/", "/torch/utils/cpp_extension")
"""Files that start compilers and their workers."""
WORKER_LOOP = "_worker_loop"


@dataclass(slots=True)
class ProcessLog:
    """Records while the script runs; mutable."""

    counts: dict[tuple[ProcessKind, str, Span | None], int] = field(default_factory=dict)
    _is_inside: bool = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record each process that is started within the block."""
        start, popen, fork = BaseProcess.start, subprocess.Popen.__init__, getattr(os, "fork", None)
        BaseProcess.start = self._start(start)  # type: ignore[method-assign,assignment]
        subprocess.Popen.__init__ = self._popen(popen)  # type: ignore[method-assign]
        if fork is not None:
            os.fork = self._fork(fork)
        try:
            yield
        finally:
            BaseProcess.start = start  # type: ignore[method-assign]
            subprocess.Popen.__init__ = popen  # type: ignore[method-assign]
            if fork is not None:
                os.fork = fork

    @property
    def records(self) -> tuple[StartedProcesses, ...]:
        """Return the processes in the order of their start, equal ones as one record."""
        return tuple(StartedProcesses(*key, count) for key, count in self.counts.items())

    def _start(self, original: Callable[[BaseProcess], None]) -> Callable[[BaseProcess], None]:
        def start(process: BaseProcess) -> None:
            target = getattr(process, "_target", None)
            is_loader = getattr(target, "__name__", "") == WORKER_LOOP
            name = type(process).__qualname__ if target is None else _name_of(target)
            self._note("data loader" if is_loader else "multiprocessing", "" if is_loader else name)
            with self._inside():
                original(process)

        return start

    def _popen(self, original: Callable[..., None]) -> Callable[..., None]:
        def popen(process: Any, args: Any, *more: Any, **options: Any) -> None:
            command = _script_of(args)
            if command:
                self._note("command", command)
            original(process, args, *more, **options)

        return popen

    def _fork(self, original: Callable[[], int]) -> Callable[[], int]:
        def fork() -> int:
            self._note("fork", "")
            return original()

        return fork

    @contextmanager
    def _inside(self) -> Iterator[None]:
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = False

    def _note(self, kind: ProcessKind, name: str) -> None:
        if self._is_inside:
            return  # multiprocessing forks, or starts Python
        span, is_torchs = _caller()
        if not is_torchs:
            key = kind, name, span
            self.counts[key] = self.counts.get(key, 0) + 1


def _name_of(target: Any) -> str:
    return str(getattr(target, "__qualname__", type(target).__name__))


def _script_of(args: Any) -> str:
    """Return the command, shortened to program and script; empty if it is not Python."""
    if isinstance(args, str):
        try:
            words: Sequence[Any] = shlex.split(args)
        except ValueError:
            return ""
    else:
        words = list(args) if isinstance(args, list | tuple) else [args]
    texts = [os.fsdecode(word) for word in words if isinstance(word, str | bytes | os.PathLike)]
    if not texts or not Path(texts[0]).name.startswith(LAUNCHERS):
        return ""
    script = next((text for text in texts[1:] if text.endswith(".py")), "")
    module = next((f"-m {name}" for flag, name in pairwise(texts) if flag == "-m"), "")
    return " ".join(filter(None, (Path(texts[0]).name, module or script)))


def _caller() -> tuple[Span | None, bool]:
    """Return the innermost line of the user's, and whether torch starts a compiler."""
    frame = inspect.currentframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if any(part in file.replace(os.sep, "/") for part in TORCHS):
            return None, True
        if is_first_party_file(file):
            return statement_span(file, frame.f_lineno), False
        frame = frame.f_back
    return None, False
