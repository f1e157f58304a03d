"""The facts of each file: the reports that mention it, and the current positions of their lines.

Invariant: the newest trace of a target is the one shown, and every position that this module returns is one
in the client's current text, in the client's units.
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
from lsp_server.index import FileIndex, Spot, build, files_of
from lsp_server.text.document import Document, LineEdit, contents
from lsp_server.text.linemap import LineMap
from lsp_server.text.positions import Encoding, convert

TraceKey = tuple[str, str | None]
"""The script's path, and the qualified name that was requested (None: every target)."""

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
        """Return the current range of a span; None when a line of it was changed."""
        start = self.lines.block_to_current(span.line - 1, span.end_line - 1)
        if start is None:
            return None
        end = start + span.end_line - span.line
        return (
            (start, self._units(span.line - 1, span.col)),
            (end, self._units(span.end_line - 1, span.end_col)),
        )

    def text_of(self, span: Span) -> str:
        """Return the traced text of a span; empty where it is not known."""
        lines = self.lines.traced[span.line - 1 : span.end_line]
        if len(lines) <= span.end_line - span.line:
            return ""
        encoded = [line.encode() for line in lines]
        encoded[-1] = encoded[-1][: span.end_col]
        encoded[0] = encoded[0][span.col :]
        return b"\n".join(encoded).decode(errors="replace")

    def traced_position(self, line: int, units: int) -> tuple[int, int] | None:
        """Return the report's line and column for a position in the current text."""
        traced = self.lines.to_traced(line)
        if traced is None:
            return None
        return traced + 1, convert(self.lines.traced[traced], units, self.encoding, "utf-8")

    def _units(self, line: int, col: int) -> int:
        text = self.lines.traced[line] if line < len(self.lines.traced) else ""
        return convert(text, col, "utf-8", self.encoding)


@dataclass(slots=True, eq=False)
class Snapshot:
    """The text of the script at the start of a trace, followed through edits since."""

    path: str
    lines: LineMap


@dataclass(frozen=True, slots=True)
class FailedTrace:
    """A trace without a report, at the file and line that caused the failure."""

    failure: Failure
    file: str
    snapshot: Snapshot

    def line(self) -> int | None:
        """Return the current line of the cause, 0-based; None once it was edited.

        A failure of the file without a line is at the top, until the file is edited.
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
    """The document's version when the trace started; None when it was not open."""

    @property
    def is_fresh(self) -> bool:
        """Return True if every file of the trace is unchanged, since one change may affect all of them."""
        return all(view.lines.is_identity for view in self.views.values())

    def path_of(self, span: Span) -> str:
        """Return the path by which documents know the file of a span."""
        return real_path(os.path.join(os.path.dirname(self.key[0]), span.file))


@dataclass(frozen=True, slots=True)
class Shown:
    """A file's part of one trace, without the targets that a newer trace shows."""

    trace: HeldTrace
    view: FileView
    newest: frozenset[TargetKey]

    @property
    def is_fresh(self) -> bool:
        return self.trace.is_fresh

    def has(self, target: Target) -> bool:
        return target_key(target) in self.newest

    def view_of(self, span: Span) -> FileView | None:
        """Return the same trace for the file of a span."""
        return self.trace.views.get(self.trace.path_of(span))

    def spots(self) -> Iterator[Spot]:
        """Yield the expressions of the file, each with the facts of one target."""
        return (spot for spot in self.view.index.spots if self.has(spot.target))

    def targets(self) -> Iterator[Target]:
        return (target for target in self.view.index.targets if self.has(target))


class Views:
    """Every trace that is held, and the documents that are open."""

    def __init__(self) -> None:
        self.encoding: Encoding = "utf-16"
        self.client = Client()
        self.rule_address: Callable[[str], str | None] = lambda code: None
        """Returns the address of the page that explains a code; set by the code that can write pages."""
        self.documents: dict[str, Document] = {}
        """Open documents by path."""
        self.traces: dict[TraceKey, HeldTrace] = {}
        self.failures: dict[TraceKey, FailedTrace] = {}
        self.tested: dict[str, HeldTrace] = {}
        """By script: the report of `aotlens why --try-fixes`. Only its fixes are shown."""
        self.steps: dict[str, HeldTrace] = {}
        """By script: the report of `aotlens fit`."""
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
        """Return the indices of a report's files: slow, so it runs in a thread, and changes nothing here."""
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
        """Show a trace, instead of the one of the same key."""
        held = self._with_current_lines(key, report, indices, snapshot)
        self.traces[key] = held
        self._clear_superseded(held)
        return held

    def hold_tested(
        self, path: str, report: Report, indices: dict[str, FileIndex], snapshot: Snapshot
    ) -> HeldTrace:
        """Offer the fixes of a report, instead of those of an earlier run of the script."""
        held = self.tested[path] = self._with_current_lines((path, None), report, indices, snapshot)
        return held

    def hold_step(
        self, path: str, report: Report, indices: dict[str, FileIndex], snapshot: Snapshot
    ) -> HeldTrace:
        """Show the memory of a script's step, instead of that of an earlier run."""
        held = self.steps[path] = self._with_current_lines((path, None), report, indices, snapshot)
        return held

    def steps_in(self, path: str) -> Iterator[tuple[HeldTrace, FileView]]:
        """Yield the results of `aotlens fit` that have lines in a file."""
        return ((held, held.views[path]) for held in self.steps.values() if path in held.views)

    def _with_current_lines(
        self, key: TraceKey, report: Report, indices: dict[str, FileIndex], snapshot: Snapshot
    ) -> HeldTrace:
        """Return a report whose lines follow the edits since the snapshot."""
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
        """Drop the traces that a trace of a whole script, or of one of its targets, replaces."""
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
        self.steps.clear()
        for key in list(self.failures):
            self.clear_failure(key)

    def files(self) -> set[str]:
        """Return every file with facts of a trace or a failure."""
        every = {file for held in (*self.traces.values(), *self.steps.values()) for file in held.views}
        return every | {failed.file for failed in self.failures.values()}

    def opened(self, path: str, document: Document) -> None:
        self.documents[path] = document
        self.replaced(path, document.lines)

    def replaced(self, path: str, lines: Sequence[str]) -> None:
        """Handle that the file has another text, by unknown edits."""
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
        """Yield the views of a file, newest first; each shows only the targets that no newer trace has."""
        seen: set[TargetKey] = set()
        for trace in sorted(self.traces.values(), key=lambda held: held.number, reverse=True):
            newest = _targets_of(trace.report) - seen
            seen |= newest
            if path in trace.views:
                yield Shown(trace, trace.views[path], frozenset(newest))

    def findings(self, path: str) -> Iterator[tuple[Shown, Diagnostic]]:
        """Yield the diagnostics of a file, each once."""
        seen: set[Diagnostic] = set()
        for shown in self.shown_in(path):
            for target, finding in shown.view.index.diagnostics:
                if finding not in seen and (target is None or shown.has(target)):
                    seen.add(finding)
                    yield shown, finding
        for held, view in self.steps_in(path):
            for _, finding in view.index.diagnostics:
                yield Shown(held, view, frozenset()), finding

    def _file_views(self, path: str) -> list[FileView]:
        every = (*self.traces.values(), *self.tested.values(), *self.steps.values())
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
    """Return the lines of a file in its declared encoding, as Python does; none if it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError:
        return []
    return contents(data.decode(_declared_encoding(data), "replace"))


def _declared_encoding(data: bytes) -> str:
    """Return the encoding of the source's first two lines, as Python does; UTF-8 where it is unknown."""
    try:
        return detect_encoding(BytesIO(data).readline)[0]
    except SyntaxError:
        return "utf-8-sig"
