"""The difference of two stages as lines of text, grouped by the user's source line."""

from collections.abc import Iterator

from rich.text import Text

from aotlens.model.report import Span, StageNode
from aotlens.model.spans import shown_path, source_line
from aotlens.model.stage_changes import StageChange, StageDifference
from aotlens.view.stage_rows import summary

STYLES = {"-": "red", "+": "green", "~": "yellow"}


def difference_lines(found: StageDifference) -> Iterator[Text]:
    """A heading with the counts, then every change below the line of the user's that it belongs to."""
    yield Text.assemble((f"{found.before} → {found.after}", "bold"), (f"  {summary(found)}", "dim"))
    shown: tuple[str, int] | None = None
    for change in found.changes:
        span = change.span
        at = (span.file, span.line) if span is not None else None
        if span is not None and at != shown:
            yield Text(f"  {_heading(span)}", "dim")
        elif span is None and (shown is not None or change is found.changes[0]):
            given = all(node.op == "placeholder" for node in (*change.before, *change.after))
            yield Text(f"  {'inputs' if given else 'added by the compiler'}", "dim")
        shown = at
        yield from _change_lines(change)


def _heading(span: Span) -> str:
    return f"{shown_path(span.file)}:{span.line}: {source_line(span.file, span.line).strip()}"


def _change_lines(change: StageChange) -> Iterator[Text]:
    if change.kind == "rewired":
        yield _line("~", change.after[0], change.reason)
        return
    for node in change.before:
        yield _line("-", node, "")
    for node in change.after:
        yield _line("+", node, change.reason or (node.reason if node.op == "placeholder" else ""))


def _line(mark: str, node: StageNode, reason: str) -> Text:
    read = ", ".join(node.inputs)
    part = node.target.removeprefix("getitem").removeprefix("getattr")
    called = {
        "call_function": f" = {node.target}({read})" if part == node.target else f" = {read}{part}",
        "step": "",
    }.get(node.op, f" = {node.op}")
    kind = f"{node.tensor.subclass} " if node.tensor and node.tensor.subclass else ""
    shape = f"  {kind}{node.tensor.short()}" if node.tensor else ""
    text = Text.assemble((f"    {mark} ", STYLES[mark]), (node.name, STYLES[mark]), called, (shape, "dim"))
    return text.append(f"  # {reason}", "dim") if reason else text
