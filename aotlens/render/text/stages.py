"""The difference of two stages as lines of text, grouped by the user's source line."""

from collections.abc import Iterator

from rich.text import Text

from aotlens.model.report import Span, StageNode
from aotlens.model.spans import shown_path, source_line
from aotlens.model.stage_changes import StageChange, StageDifference
from aotlens.view.stage_rows import summary

STYLES = {"-": "red", "+": "green", "~": "yellow"}


def stage_difference_lines(difference: StageDifference) -> Iterator[Text]:
    """Yield a heading with the counts, then every change below its line of the user's."""
    yield Text.assemble(
        (f"{difference.before} → {difference.after}", "bold"), (f"  {summary(difference)}", "dim")
    )
    shown: tuple[str, int] | None = None
    for change in difference.changes:
        span = change.span
        position = (span.file, span.line) if span is not None else None
        if span is not None and position != shown:
            yield Text(f"  {_heading(span)}", "dim")
        elif span is None and (shown is not None or change is difference.changes[0]):
            all_inputs = all(node.op == "placeholder" for node in (*change.before, *change.after))
            yield Text(f"  {'inputs' if all_inputs else 'added by the compiler'}", "dim")
        shown = position
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
