"""What is known of each file: the reports that mention it, and where their lines stand now.

Invariant: the newest trace of a target is the one shown, and every place that leaves this module is a
place in the text as the client has it now, in the client's units.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from pathlib import Path
from tokenize import detect_encoding

from aotlens.model.failure import NOT_THE_FILES, Failure
from aotlens.model.report import Diagnostic, Report, Span, Target
from lsp_server.client import Client
from lsp_server.document import Document, LineEdit, contents
from lsp_server.index import FileIndex, Spot, build, files_of
from lsp_server.linemap import LineMap
from lsp_server.positions import Encoding, convert

TraceKey = tuple[str, str | None]
"""The script's path, and the qualified name that was asked for (None: every target)."""

TargetKey = tuple[str, str]
"""The file that defines a target, and its qualified name."""

Position = tuple[int, int]
"""0-based line, and column in the client's units."""


@dataclass(slots=True)
class FileView:
    """One trace, seen from one file."""

    index: FileIndex
    lines: LineMap
    encoding: Encoding

    def range_of(self, span: Span) -> tuple[Position, Position] | None:
        """Where a span stands now; None when a line of it was changed."""
        start = self.lines.block_to_current(span.line - 1, span.end_line - 1)
        if start is None:
            return None
        end = start + span.end_line - span.line
        return (
            (start, self._units(span.line - 1, span.col)),
            (end, self._units(span.end_line - 1, span.end_col)),
        )

    def text_of(self, span: Span) -> str:
        """The text of a span as it was traced; empty where the traced text is not known that far."""
        lines = self.lines.traced[span.line - 1 : span.end_line]
        if len(lines) <= span.end_line - span.line:
            return ""
        encoded = [line.encode() for line in lines]
        encoded[-1] = encoded[-1][: span.end_col]
        encoded[0] = encoded[0][span.col :]
        return b"\n".join(encoded).decode(errors="replace")

    def traced_position(self, line: int, units: int) -> tuple[int, int] | None:
        """The report's line and column for a place in the text as it is now."""
        traced = self.lines.to_traced(line)
        if traced is None:
            return None
        return traced + 1, convert(self.lines.traced[traced], units, self.encoding, "utf-8")

    def _units(self, line: int, col: int) -> int:
        text = self.lines.traced[line] if line < len(self.lines.traced) else ""
        return convert(text, col, "utf-8", self.encoding)


@dataclass(slots=True, eq=False)
class Snapshot:
    """The text of the script as it was when a trace was asked for, followed through edits since."""

    path: str
    lines: LineMap


@dataclass(frozen=True, slots=True)
class FailedTrace:
    """A trace that gave no report, at the file and line to blame."""

    failure: Failure
    file: str
    snapshot: Snapshot

    def line(self) -> int | None:
        """The line to blame as it stands now, 0-based; None once it was edited.

        A failure of the file without a line stands at the top, until the file is edited at all.
        """
        if self.failure.kind in NOT_THE_FILES:
            return None  # not the file's fault
        if self.failure.line is None:
            return 0 if self.snapshot.lines.is_identity else None
        return self.snapshot.lines.to_current(self.failure.line - 1)


@dataclass(slots=True)
class HeldTrace:
    """A report with its files."""

    key: TraceKey
    number: int
    """Higher is newer."""
    report: Report
    views: dict[str, FileView]
    version: int | None
    """The document's version when the trace was asked for; None when it was not open."""

    @property
    def is_fresh(self) -> bool:
        """Whether every file that the trace tells of is as it was traced: a change in one may change all."""
        return all(view.lines.is_identity for view in self.views.values())


@dataclass(frozen=True, slots=True)
class Shown:
    """A file's part of one trace, less the targets that a newer trace shows."""

    trace: HeldTrace
    view: FileView
    newest: frozenset[TargetKey]

    @property
    def is_fresh(self) -> bool:
        return self.trace.is_fresh

    def has(self, target: Target) -> bool:
        return target_key(target) in self.newest

    def view_of(self, span: Span) -> FileView | None:
        """The same trace, seen from the file of a span."""
        base = os.path.dirname(self.trace.key[0])
        return self.trace.views.get(real_path(os.path.join(base, span.file)))

    def spots(self) -> Iterator[Spot]:
        return (spot for spot in self.view.index.spots if self.has(spot.target))

    def targets(self) -> Iterator[Target]:
        return (target for target in self.view.index.targets if self.has(target))


class Views:
    """Every trace that is held, and the documents that are open."""

    def __init__(self) -> None:
        self.encoding: Encoding = "utf-16"
        self.client = Client()
        self.rule_address: Callable[[str], str | None] = lambda code: None
        """The address of the page that explains a code; set by whoever can write pages."""
        self.documents: dict[str, Document] = {}
        """Open documents by path."""
        self.traces: dict[TraceKey, HeldTrace] = {}
        self.failures: dict[TraceKey, FailedTrace] = {}
        self.tested: dict[str, HeldTrace] = {}
        """By script: the report of `aotlens why --try-fixes`. Only its fixes are shown."""
        self._snapshots: list[Snapshot] = []
        self._numbers = count()

    def snapshot(self, path: str) -> Snapshot:
        """Start to follow the file at `path` for a trace; `hold`, `hold_failure` or `drop` ends it."""
        traced = read_lines(path)
        snapshot = Snapshot(path, LineMap(traced, self._current(path, traced)))
        self._snapshots.append(snapshot)
        return snapshot

    def drop(self, snapshot: Snapshot) -> None:
        self._snapshots = [other for other in self._snapshots if other is not snapshot]

    def prepare(self, report: Report, path: str, lines: Iterable[str]) -> dict[str, FileIndex]:
        """The indices of a report's files: slow, so it runs away from the loop, and changes nothing here."""
        base = os.path.dirname(path)

        def resolve(name: str) -> str:
            return real_path(os.path.join(base, name))

        texts = {path: list(lines)}
        for file in files_of(report, resolve) - {path}:
            texts[file] = read_lines(file)
        return {file: build(report, file, text, resolve) for file, text in texts.items()}

    def hold(
        self, key: TraceKey, report: Report, indices: dict[str, FileIndex], snapshot: Snapshot
    ) -> HeldTrace:
        """Show a trace from now on, in place of the one of the same key."""
        held = self._held(key, report, indices, snapshot)
        self.traces[key] = held
        self._clear_superseded(held)
        return held

    def hold_tested(
        self, path: str, report: Report, indices: dict[str, FileIndex], snapshot: Snapshot
    ) -> HeldTrace:
        """Offer the fixes of a report from now on, in place of those of an earlier run of the script."""
        held = self.tested[path] = self._held((path, None), report, indices, snapshot)
        return held

    def _held(
        self, key: TraceKey, report: Report, indices: dict[str, FileIndex], snapshot: Snapshot
    ) -> HeldTrace:
        """A report whose lines follow the edits since the snapshot."""
        views = {}
        for file, index in indices.items():
            if file == snapshot.path:
                lines = snapshot.lines
            else:
                traced = read_lines(file)
                lines = LineMap(traced, self._current(file, traced))
            views[file] = FileView(index, lines, self.encoding)
        document = self.documents.get(key[0])
        held = HeldTrace(key, next(self._numbers), report, views, document.version if document else None)
        self.drop(snapshot)
        return held

    def hold_failure(self, key: TraceKey, failure: Failure, snapshot: Snapshot) -> FailedTrace:
        """Show a failure until the next trace of the same key; the last good report stays beside it."""
        self.clear_failure(key)
        file = real_path(os.path.join(os.path.dirname(snapshot.path), failure.file or snapshot.path))
        if file != snapshot.path:
            self.drop(snapshot)
            snapshot = self.snapshot(file)
        elif snapshot not in self._snapshots:
            self._snapshots.append(snapshot)
        failed = FailedTrace(failure, file, snapshot)
        self.failures[key] = failed
        return failed

    def _clear_superseded(self, held: HeldTrace) -> None:
        """What a trace of a whole script, or of one of its targets, makes out of date."""
        path, qualname = held.key
        for key in [key for key in self.failures if key == held.key or (qualname is None and key[0] == path)]:
            self.clear_failure(key)
        if qualname is None:
            shown = {target_key(target) for target in held.report.targets}
            for key, older in list(self.traces.items()):
                if key[0] == path and older is not held and _targets_of(older.report) <= shown:
                    del self.traces[key]

    def clear_failure(self, key: TraceKey) -> FailedTrace | None:
        failed = self.failures.pop(key, None)
        if failed is not None:
            self.drop(failed.snapshot)
        return failed

    def forget(self) -> None:
        """Drop every trace, failure and tested fix."""
        self.traces.clear()
        self.tested.clear()
        for key in list(self.failures):
            self.clear_failure(key)

    def files(self) -> set[str]:
        """Every file that a trace or a failure has something to say about."""
        every = {file for held in self.traces.values() for file in held.views}
        return every | {failed.file for failed in self.failures.values()}

    def opened(self, path: str, document: Document) -> None:
        self.documents[path] = document
        self.replaced(path, document.lines)

    def replaced(self, path: str, lines: Sequence[str]) -> None:
        """The file has another text, and what led to it is not known."""
        for view in self._file_views(path):
            view.lines = LineMap(view.lines.traced, lines)
        for snapshot in self._snapshots:
            if snapshot.path == path:
                snapshot.lines = LineMap(snapshot.lines.traced, lines)

    def edited(self, path: str, edit: LineEdit) -> None:
        maps = [view.lines for view in self._file_views(path)]
        maps += [snapshot.lines for snapshot in self._snapshots if snapshot.path == path]
        for lines in {id(line_map): line_map for line_map in maps}.values():
            lines.edit(edit)

    def closed(self, path: str) -> None:
        self.documents.pop(path, None)

    def shown_in(self, path: str) -> Iterator[Shown]:
        """The views of a file, newest first; each shows only the targets that no newer trace has."""
        seen: set[TargetKey] = set()
        for trace in sorted(self.traces.values(), key=lambda held: held.number, reverse=True):
            newest = _targets_of(trace.report) - seen
            seen |= newest
            if path in trace.views:
                yield Shown(trace, trace.views[path], frozenset(newest))

    def findings(self, path: str) -> Iterator[tuple[Shown, Diagnostic]]:
        """The diagnostics of a file, each once."""
        seen: set[Diagnostic] = set()
        for shown in self.shown_in(path):
            for target, finding in shown.view.index.diagnostics:
                if finding not in seen and (target is None or shown.has(target)):
                    seen.add(finding)
                    yield shown, finding

    def _file_views(self, path: str) -> list[FileView]:
        every = (*self.traces.values(), *self.tested.values())
        return [held.views[path] for held in every if path in held.views]

    def _current(self, path: str, otherwise: list[str]) -> list[str]:
        document = self.documents.get(path)
        return document.lines if document else otherwise


def _targets_of(report: Report) -> set[TargetKey]:
    return {target_key(target) for target in report.targets}


def target_key(target: Target) -> TargetKey:
    return target.span.file if target.span else "", target.qualname


def real_path(path: str) -> str:
    return os.path.realpath(path)


def read_lines(path: str) -> list[str]:
    """The lines of a file as Python reads them, in the encoding it declares; none if it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError:
        return []
    return contents(data.decode(_declared_encoding(data), "replace"))


def _declared_encoding(data: bytes) -> str:
    """That of the source's first two lines, as Python finds it; UTF-8 where it is unknown."""
    try:
        return detect_encoding(BytesIO(data).readline)[0]
    except SyntaxError:
        return "utf-8-sig"
