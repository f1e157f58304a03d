"""What `aotlens inspect --format text` prints.

Invariant: everything comes from the report; nothing is looked up anywhere but in the user's source files.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from aotlens.report.activations import partition_lines
from aotlens.report.changes import CUDA_GRAPH, KERNELS, WRAPPER, parse_range, stage_difference, unknown_stage
from aotlens.report.changes_text import difference_lines
from aotlens.report.closing import timings_text
from aotlens.report.cuda_graph_lines import cuda_graph_lines
from aotlens.report.excerpt import diagnostic_lines
from aotlens.report.kernel_lines import kernel_lines
from aotlens.report.layout import (
    WIDTH,
    Row,
    fitted,
    heading,
    page_width,
    paragraph,
    print_lines,
    rule,
    table,
    to_text,
)
from aotlens.report.ledger import (
    guard_lines,
    input_lines,
    left_lines,
    operator_lines,
    output_lines,
    site_lines,
)
from aotlens.report.peak_text import memory_lines
from aotlens.report.places import place
from aotlens.report.records import Report, Stage, Target
from aotlens.report.summary import (
    applied_steps,
    call_count,
    counted,
    human_bytes,
    human_ms,
    signature,
    target_summary,
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What to print beside the overview."""

    wrapper_source: bool = False
    stage: str | None = None
    """Only this stage's program (`forward`, `wrapper`, …), the difference `captured..functional` of two, or
    the kernels (`kernels`); None prints the overview."""


def print_report(report: Report, console: Console, shown: Shown | None = None) -> None:
    """Print the report; colour only where the console has it (a terminal, and no NO_COLOR)."""
    print_lines(report_lines(report, page_width(console), shown or Shown()), console)


def report_text(report: Report, shown: Shown | None = None, width: int = WIDTH) -> str:
    """The report as plain text."""
    return to_text(report_lines(report, width, shown or Shown()))


def report_lines(report: Report, width: int, shown: Shown) -> Iterator[Text]:
    """Every line of the report. Raises UserError when no target has the stage that was asked for."""
    if shown.stage is not None:
        yield from _stage_lines(report, shown.stage, width)
        return
    for index, target in enumerate(report.targets):
        yield from fitted(target_lines(target, width, _title(report, index)), width)
        if shown.wrapper_source and target.wrapper:
            yield heading("Wrapper source")
            yield from _source_lines(target.wrapper.source)
            yield Text()
    for diagnostic in report.diagnostics:
        yield from fitted(diagnostic_lines(diagnostic, width), width)
        yield Text()
    if not report.targets and not report.diagnostics:
        yield Text("no targets")


def _title(report: Report, index: int) -> str:
    """The target's name; with its number and signature when the report has several of that name."""
    target = report.targets[index]
    same = [place for place, other in enumerate(report.targets) if other.qualname == target.qualname]
    if len(same) == 1:
        return target.name
    return f"{target.name} #{same.index(index) + 1} {signature(target)}"


def target_lines(target: Target, width: int, title: str) -> Iterator[Text]:
    """One target: its header, ledgers, guards, partition, wrapper, stages, kernels and diagnostics."""
    yield rule(title, place(target.span) if target.span else target.qualname, width)
    yield Text.assemble(target_summary(target), (f" · {target.frontend} frontend", "dim"))
    yield Text()
    sections = (
        input_lines(target, width),
        output_lines(target, width),
        left_lines(target, width),
        guard_lines(target, width),
        operator_lines(target, width),
        partition_lines(target.partition, width) if target.partition else iter(()),
        memory_lines(target.memory, width) if target.memory else iter(()),
        wrapper_lines(target, width),
        stage_table(target, width),
        kernel_lines(target, width),
        cuda_graph_lines(target.cuda_graph, width),
        _findings(target, width),
    )
    for section in sections:
        lines = tuple(section)
        if lines:
            yield from lines
            yield Text()


def wrapper_lines(target: Target, width: int) -> Iterator[Text]:
    """The steps that run on each call, then the names of those that do not."""
    if target.wrapper is None:
        return
    applied = applied_steps(target)
    yield heading("Wrapper", f"{counted(len(applied), 'step')} on each call")
    rows = [
        Row(
            (
                step.name,
                f"{human_bytes(step.bytes_per_call)} a call" if step.bytes_per_call else "",
                step.reason,
            ),
            ("cyan", "yellow", ""),
            tuple(site_lines(step.sites, " " * 6)),
        )
        for step in applied
    ]
    yield from table(rows, width)
    spared = [step.name for step in target.wrapper.steps if not step.applied]
    if spared:
        yield from paragraph(f"not needed: {', '.join(spared)}", width, "  ", "dim")


def stage_table(target: Target, width: int) -> Iterator[Text]:
    """Each stage's program by its size, and the compile time by pipeline stage."""
    if target.stages:
        yield heading("Programs")
        rows = [
            Row((stage.name, str(call_count(target.stage(stage.name))), stage_origin(stage)))
            for stage in target.stages
        ]
        yield from table(rows, width, frozenset({1}))
    if target.timings_ms:
        yield heading("Compile time", human_ms(sum(target.timings_ms.values())))
        yield from paragraph(timings_text(target), width, "  ")


def stage_origin(stage: Stage) -> str:
    """Where a stage's program comes from: `from joint`, or that it is the one before."""
    if stage.same_as is not None:
        return f"changes nothing: as {stage.same_as}"
    return f"from {stage.parent}" if stage.parent else "your code"


def _findings(target: Target, width: int) -> Iterator[Text]:
    for position, diagnostic in enumerate(target.diagnostics):
        if position:
            yield Text()
        yield from diagnostic_lines(diagnostic, width)


def _stage_lines(report: Report, name: str, width: int) -> Iterator[Text]:
    """One stage's program of every target that has it, or the difference of two."""
    found = [
        (target, lines)
        for target in report.targets
        if (lines := _shown_stage(target, name, width)) is not None
    ]
    if not found:
        raise unknown_stage(report, name)
    for target, lines in found:
        if len(found) > 1:
            yield rule(target.name, name, width)
        yield from lines
    without = [target.name for target in report.targets if all(target is not one for one, _ in found)]
    yield from (Text(f"# {one} has no {name}", "dim") for one in without)


def _shown_stage(target: Target, name: str, width: int) -> list[Text] | None:
    """The lines for one stage or a range of two; None when the target lacks it."""
    both = parse_range(name)
    if both is not None:
        difference = stage_difference(target, *both)
        return None if difference is None else list(difference_lines(difference))
    if name == KERNELS:
        return list(fitted(kernel_lines(target, width), width)) or None
    if name == CUDA_GRAPH:
        return list(fitted(cuda_graph_lines(target.cuda_graph, width), width)) or None
    if name == WRAPPER:
        return list(_source_lines(target.wrapper.source)) if target.wrapper else None
    stage = target.stage(name)
    if stage is None:
        return None
    lines = list(_source_lines(stage.text))
    if stage.same_as is not None:
        lines.insert(0, Text(f"# {name} changes nothing: the program of {stage.same_as}", "dim"))
    return lines


def _source_lines(text: str) -> Iterator[Text]:
    """Python text, comments dimmed."""
    for line in text.rstrip("\n").split("\n"):
        code, mark, comment = line.partition("  # ")
        if line.lstrip().startswith("#"):
            yield Text(line, "dim")
        else:
            yield Text.assemble(code, (mark + comment, "dim"))
