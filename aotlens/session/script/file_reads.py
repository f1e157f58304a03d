"""Record the files that a script reads, so that its trace can be reused while they are unchanged.

Invariant: every file or folder that Python opens for reading is listed, also a missing one.  What cannot be
listed (a network, another process, a library that opens files itself) is named instead.
"""

import functools
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import FileFinder
from types import ModuleType
from typing import Any

from aotlens.worker.answers import module_folder_key
from aotlens.worker.stacks import is_user_file

__all__ = ["FileReads", "files_of_run", "recording_file_reads"]

_NOT_FILES = ("/proc/", "/sys/", "/dev/")
_NOT_LISTED = {
    "socket.connect": "it asks the network",
    "socket.getaddrinfo": "it asks the network",
    "subprocess.Popen": "it starts other programs",
    "os.system": "it starts other programs",
    "os.posix_spawn": "it starts other programs",
    "os.exec": "it starts other programs",
    "os.fork": "it starts other processes",
    "os.forkpty": "it starts other processes",
}
"""Audit events after which the same script may behave differently."""
_NATIVE = ("h5py", "lmdb", "cv2", "decord", "netCDF4")
"""Libraries whose native code opens files without audit events."""
_OPENERS = {"safetensors": "safe_open", "pyarrow": "memory_map"}
"""For such libraries the function that opens files without reading them: its first argument is the path."""
_IDLE_BYTES = 256
"""More than pyarrow allocates when it is only imported, as by transformers; a table of one row needs 384."""
_IMPORTERS = frozenset({FileFinder.find_spec.__globals__["__name__"], "importlib.metadata", "pkgutil"})
"""Modules of Python that list a folder only to find modules, and packages with their versions."""
_FOLDERS = frozenset({"os.listdir", "os.scandir"})
_AUDITED = frozenset({"open", *_FOLDERS, *_NOT_LISTED})


@dataclass(slots=True)
class FileReads:
    """Records while the script runs; mutable."""

    paths: dict[str, None] = field(default_factory=dict)
    """Absolute paths, or keys of folders that imports listed, in the order of the first read."""
    outside: str = ""
    """Why the next run may read something else; empty if there is no such reason."""

    def record(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            self._record_path(arguments[0], arguments[2])
        elif event in _FOLDERS:
            folder = os.curdir if arguments[0] is None else arguments[0]
            self._record_path(folder, 0, module_folder_key if _is_import() else str)
        elif event in _NOT_LISTED:
            self.outside = self.outside or _NOT_LISTED[event]

    def _record_path(self, path: Any, flags: Any, key: Callable[[str], str] = str) -> None:
        if not isinstance(path, str | bytes | os.PathLike):  # a descriptor, opened by name before
            return
        if isinstance(flags, int) and flags & os.O_ACCMODE == os.O_WRONLY:
            return
        name = os.path.abspath(os.fsdecode(path))
        if not name.startswith(_NOT_FILES) and "/__pycache__" not in name and is_user_file(name):
            self.paths[key(name)] = None


def _is_import() -> bool:
    """Return True if Python lists the folder of the current audit event to find modules or packages."""
    return sys._getframe(3).f_globals.get("__name__") in _IMPORTERS


_current: FileReads | None = None
_installed = False


def _audit_hook(event: str, arguments: tuple[Any, ...]) -> None:
    """Record an audit event of Python; a trace has a hundred thousand of them."""
    if event in _AUDITED and _current is not None:
        _current.record(event, arguments)


class _OpenerFinder(importlib.abc.MetaPathFinder):
    """Wraps the opener of a library as soon as it is imported; finds no module itself."""

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module as the other finders do, and record what it opens once it is loaded."""
        if fullname not in _OPENERS:
            return None
        sys.meta_path.remove(self)  # so that the other finders are asked
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            loader, execute = spec.loader, spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _record_opener(module)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _record_opener(module: ModuleType) -> None:
    name = _OPENERS[module.__name__]
    opened = getattr(module, name)

    @functools.wraps(opened, updated=())
    def recording(*args: Any, **kwargs: Any) -> Any:
        path = next(iter((*args, kwargs.get("filename", kwargs.get("path")))))
        if _current is not None and path is not None:
            _current.record("open", (path, None, os.O_RDONLY))
        return opened(*args, **kwargs)

    setattr(module, name, recording)


def files_of_run(path: str, reads: FileReads, modules: Iterable[str]) -> tuple[str, ...]:
    """Return the script, those of the modules that are the user's, and the files that the script read."""
    files = [os.path.abspath(path)]
    for name in modules:
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str) and is_user_file(file) and os.path.isfile(file):
            files.append(os.path.abspath(file))
    return tuple(dict.fromkeys((*files, *reads.paths)))


@contextmanager
def recording_file_reads(is_enabled: bool) -> Iterator[FileReads]:
    """Record what this process reads within the block, if wanted."""
    global _current, _installed  # noqa: PLW0603 (an audit hook is the process's, and cannot be taken away)
    if not is_enabled:
        yield FileReads()
        return
    if not _installed:
        sys.addaudithook(_audit_hook)
        sys.meta_path.insert(0, _OpenerFinder())
        _installed = True
    reads = FileReads()
    before, _current = _current, reads
    try:
        yield reads
    finally:
        _current = before
        native = next((name for name in _NATIVE if name in sys.modules), None)
        if native is None and _has_read_tables():
            native = "pyarrow"
        if native is not None:
            reads.outside = reads.outside or f"{native} opens files itself"


def _has_read_tables() -> bool:
    """Return True if pyarrow may have read a file: its own memory has held data."""
    native = sys.modules.get("pyarrow.lib")
    if native is None:
        return False
    peak = native.default_memory_pool().max_memory()
    return peak is None or peak > _IDLE_BYTES
