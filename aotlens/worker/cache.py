"""Answers by content: the same request on unchanged sources is not traced twice.

Invariant: an entry is used only while every user file that its trace read still has the same bytes.  The
versions of torch, Python and aotlens are those of the server's process, so they need no place in the key.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace

from aotlens.worker.kept import changed_since, file_digest, question
from aotlens.worker.protocol import Answer, TraceRequest

_LIMIT = 32
"""Entries kept; a report of a large model is megabytes."""


@dataclass(frozen=True, slots=True)
class _Entry:
    answer: Answer
    digests: tuple[tuple[str, str | None], ...]
    """Each file with the hash of its bytes."""


class Cache:
    """The latest answer for each request that succeeded."""

    def __init__(self) -> None:
        self._entries: OrderedDict[TraceRequest, _Entry] = OrderedDict()

    def find(self, request: TraceRequest) -> Answer | None:
        """The answer, marked as cached, or None when there is none or a file has changed."""
        entry = None if request.fresh else self._entries.get(question(request))
        if entry is None or any(file_digest(file) != digest for file, digest in entry.digests):
            return None
        return replace(entry.answer, id=request.id, cached=True, elapsed_ms=0.0)

    def keep(self, request: TraceRequest, answer: Answer, files: tuple[str, ...], started: float) -> None:
        """Remember a complete answer; failures are traced again, they may depend on more than sources.

        `started` is the time of the trace's beginning: a file changed since then may not be what was read.
        """
        if answer.report is None or answer.failure is not None:
            return
        if any(changed_since(file, started) for file in files):
            return
        self._entries[question(request)] = _Entry(answer, tuple((file, file_digest(file)) for file in files))
        while len(self._entries) > _LIMIT:
            self._entries.popitem(last=False)
