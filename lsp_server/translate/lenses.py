"""Code lenses: "Trace" on each target, and after a trace its results."""

from dataclasses import dataclass

from lsprotocol import types

from aotlens.model.report import Target
from aotlens.view.quantities import target_summary
from lsp_server.text.targets import TextTarget
from lsp_server.translate.diagnostics import uri_of
from lsp_server.views import Shown, TargetKey, Views, target_key

TRACE, SHOW, CANCEL, EXPLAIN = "aotlens.trace", "aotlens.show", "aotlens.cancel", "aotlens.explain"
VERIFY, TRY_FIXES, FIT = "aotlens.verify", "aotlens.tryFixes", "aotlens.fit"
LOWER_PEAK = "aotlens.lowerPeak"
CHOOSE_GPU = "aotlens.chooseGpu"
OPEN_TUI = "aotlens.openTui"
"""The client's own command, since only the client has a terminal; see the setting `terminal`."""


@dataclass(frozen=True, slots=True)
class Lens:
    """One lens without a protocol type."""

    line: int
    title: str
    command: str
    arguments: tuple[object, ...]


def code_lenses(views: Views, path: str, uri: str, targets: tuple[TextTarget, ...]) -> list[types.CodeLens]:
    """Return the lenses of a document; `targets` are those of its current text, lines are 0-based."""
    lenses = [lens for shown in views.shown_in(path) for lens in _traced(views, shown)]
    traced = {lens.line for lens in lenses}
    untraced = [target for target in targets if target.line not in traced]
    for target in untraced:
        title = "retrace" if (path, target.qualname) in views.traces else "Trace"
        lenses.append(Lens(target.line, title, TRACE, (uri, target.qualname)))
    return [_protocol(lens) for lens in sorted(lenses, key=lambda lens: lens.line)]


def _traced(views: Views, shown: Shown) -> list[Lens]:
    lenses: list[Lens] = []
    seen: set[TargetKey] = set()
    uri = uri_of(views, shown.trace.key[0])
    for target in shown.targets():
        line = _line(shown, target)
        if line is None or target_key(target) in seen:
            continue
        seen.add(target_key(target))
        stale = "" if shown.is_fresh else "before edits: "
        graph = "forward" if target.mode == "training" else "inference"
        lenses.append(Lens(line, stale + target_summary(target), SHOW, (uri, target.qualname, graph)))
        if target.mode == "training":
            lenses.append(Lens(line, "backward", SHOW, (uri, target.qualname, "backward")))
        if target.wrapper:
            lenses.append(Lens(line, "wrapper", SHOW, (uri, target.qualname, "wrapper")))
        if target.verified is None:
            lenses.append(Lens(line, "verify", VERIFY, (uri, shown.trace.key[1])))
        lenses.append(Lens(line, "retrace", TRACE, (uri, shown.trace.key[1])))
        lenses.append(Lens(line, "terminal app", OPEN_TUI, (uri, target.qualname)))
    return lenses


def _line(shown: Shown, target: Target) -> int | None:
    signature = shown.view.index.signatures.get(target.qualname)
    first = signature.name.line if signature else (target.span.line if target.span else None)
    return None if first is None else shown.view.lines.to_current(first - 1)


def _protocol(lens: Lens) -> types.CodeLens:
    start = types.Position(lens.line, 0)
    command = types.Command(title=lens.title, command=lens.command, arguments=list(lens.arguments))
    return types.CodeLens(range=types.Range(start, start), command=command)
