"""Answers of earlier requests, by content: in memory for a server, on disk for commands.  Stdlib only.

Invariant: a stored answer is returned only while every file that its trace read is unchanged.
"""

import hashlib
import os
import platform
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from aotlens.disk_cache import Store, digest, open_store
from aotlens.worker.codec import ProtocolError, decode, encode
from aotlens.worker.protocol import Answer, TraceOptions, TraceRequest

__all__ = ["AnswerCache", "AnswerStore", "file_digest", "module_folder_key", "open_answer_store"]

_LIMIT = 32
"""The number of entries; a report of a large model is megabytes."""


@dataclass(frozen=True, slots=True)
class _Entry:
    answer: Answer
    digests: tuple[tuple[str, str | None], ...]
    """Each file with the hash of its bytes."""


class AnswerCache:
    """The latest answer for each request that succeeded."""

    def __init__(self) -> None:
        self._entries: OrderedDict[TraceRequest, _Entry] = OrderedDict()

    def find(self, request: TraceRequest) -> Answer | None:
        """Return the answer, marked as cached; None without one, or if a file has changed."""
        entry = None if request.fresh else self._entries.get(canonical_request(request))
        if entry is None or any(file_digest(file) != digest for file, digest in entry.digests):
            return None
        return replace(entry.answer, id=request.id, cached=True, elapsed_ms=0.0)

    def add(self, request: TraceRequest, answer: Answer, files: tuple[str, ...], started: float) -> None:
        """Store a complete answer; failures are retraced, because they may depend on more than sources.

        `started` is the start time of the trace: a file changed since then may differ from what was read.
        """
        if answer.report is None or answer.failure is not None:
            return
        if any(changed_since(file, started) for file in files):
            return
        self._entries[canonical_request(request)] = _Entry(
            answer, tuple((file, file_digest(file)) for file in files)
        )
        while len(self._entries) > _LIMIT:
            self._entries.popitem(last=False)


KIND = "answers"
_METADATA = (".dist-info", ".egg-info")
"""How the folder ends in which an installed package has its version."""
_LARGEST_READ_BYTES = 1 << 24
"""For a larger file (weights, a data set) size and modification time replace the hash of its bytes."""

_SHELLS_OWN = (
    "TERM",
    "SSH_",
    "TMUX",
    "XDG_SESSION",
    "DBUS_",
    "VSCODE_",
    "VTE_",
    "WINDOW",
    "GNOME_",
    "KITTY_",
)
_SHELLS = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "STY", "DISPLAY", "COLORTERM"})
"""Variables that a shell or terminal sets for itself, which differ from window to window."""


def open_answer_store() -> "AnswerStore | None":
    store = open_store()
    return None if store is None else AnswerStore(store)


@dataclass(frozen=True, slots=True)
class AnswerStore:
    store: Store

    def find(self, request: TraceRequest) -> Answer | None:
        """Return the answer, marked as cached; None without one, or if something has changed since."""
        entry: Any = self.store.get(KIND, _key(request))
        if not isinstance(entry, dict) or not isinstance(entry.get("read"), dict):
            return None
        if any(file_digest(path) != known for path, known in entry["read"].items()):
            return None
        try:
            answer = decode(str(entry.get("answer")).encode())
        except ProtocolError:
            return None
        return replace(answer, id=request.id, cached=True) if isinstance(answer, Answer) else None

    def add(self, request: TraceRequest, answer: Answer, started: float) -> None:
        """Store a complete answer; `started` is the start time of the trace, on the clock of the files.

        A file that has changed since then may differ from what the trace read.
        """
        if (
            answer.report is None
            or answer.failure is not None
            or answer.outside
            or _has_failed(answer.report)
        ):
            return
        if any(changed_since(path, started) for path in answer.files):
            return
        read = {path: file_digest(path) for path in answer.files}
        self.store.put(KIND, _key(request), {"read": read, "answer": encode(answer).decode()})


def _has_failed(report: dict[str, Any]) -> bool:
    """Return True if a kernel has no code: it exceeded a time limit, perhaps on a busy machine."""
    return any(kernel.get("error") for target in report.get("targets", ()) for kernel in target["kernels"])


def module_folder_key(path: str) -> str:
    """Return the name under which `file_digest` hashes only what Python could import from the folder.

    Imports list the folder of the script, where a page that is written next to it changes nothing.
    """
    return os.path.join(path, "")


def file_digest(path: str) -> str | None:
    """Return the hash of a file's bytes or a folder's names; None if it cannot be read."""
    try:
        if path.endswith(os.sep):
            return digest(*sorted(_module_names(path)))
        about = os.stat(path)
        if os.path.isdir(path):
            return digest(*sorted(os.listdir(path)))
        if about.st_size > _LARGEST_READ_BYTES:
            return f"{about.st_size} {about.st_mtime_ns}"
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def _module_names(folder: str) -> Iterator[str]:
    suffixes = (*all_suffixes(), *_METADATA)
    with os.scandir(folder) as entries:
        for entry in entries:
            is_package = entry.name.isidentifier() and entry.name != "__pycache__" and entry.is_dir()
            if is_package or entry.name.endswith(suffixes):
                yield entry.name


def changed_since(path: str, started: float) -> bool:
    try:
        return os.path.isfile(path) and os.stat(path).st_mtime >= started
    except OSError:
        return True


def canonical_request(request: TraceRequest) -> TraceRequest:
    """Return the request without the options that do not change its answer.

    Without a GPU target it does not matter how its kernels would be shown: text, HTML and JSON ask the same.
    """
    options = request.options
    if options.gpu is None:
        default = TraceOptions()
        options = replace(options, gpu_texts=default.gpu_texts, kernel_limit_s=default.kernel_limit_s)
    return replace(
        request,
        id=0,
        options=options,
        time_limit_s=0.0,
        memory_limit_bytes=None,
        fresh=False,
        list_reads=True,
    )


def _key(request: TraceRequest) -> str:
    fields = asdict(canonical_request(request))
    return digest(repr(sorted(fields.items())), os.getcwd(), *_environment(), *_installation())


def _environment() -> list[str]:
    names = (name for name in sorted(os.environ) if name not in _SHELLS and not name.startswith(_SHELLS_OWN))
    return [f"{name}={os.environ[name]}" for name in names]


def _installation() -> list[str]:
    """Return what identifies the installation: folders that change with it, this package, the machine."""
    folders = {path for path in sys.path if path and os.path.isdir(path)}
    installed = [f"{path} {os.stat(path).st_mtime_ns}" for path in sorted(folders) if "-packages" in path]
    package = Path(__file__).parents[1]
    own = [f"{file.name} {file.stat().st_mtime_ns} {file.stat().st_size}" for file in package.rglob("*.py")]
    machine = f"{platform.node()} {os.cpu_count()} {sorted(Path('/dev').glob('nvidia*'))}"
    return [sys.executable, sys.version, *installed, *sorted(own), machine]
