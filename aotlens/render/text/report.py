"""The output of `aotlens inspect --format text`.

Invariant: all facts come from the report; only the user's source files are read beside it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from aotlens.model.report import Report, Stage, Target
from aotlens.model.spans import location
from aotlens.model.stage_changes import (
    CUDA_GRAPH,
    KERNELS,
    WRAPPER,
    parse_range,
    stage_difference,
    unknown_stage,
)
from aotlens.render.text.actions import action_lines
from aotlens.render.text.activations import partition_lines
from aotlens.render.text.closing import timings_text
from aotlens.render.text.cuda_graphs import cuda_graph_lines
from aotlens.render.text.diagnostics import diagnostic_lines, diagnostic_list
from aotlens.render.text.kernels import kernel_lines
from aotlens.render.text.layout import (
    WIDTH,
    Page,
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
from aotlens.render.text.ledger import (
    guard_lines,
    input_lines,
    input_summary,
    operator_lines,
    output_lines,
    output_summary,
    side_effect_lines,
    site_lines,
)
from aotlens.render.text.logs import listed_target_lines, process_lines, unused_record_lines
from aotlens.render.text.peak import memory_lines
from aotlens.render.text.ranks import rank_lines
from aotlens.render.text.stages import stage_difference_lines
from aotlens.render.text.targets import main_targets, other_target_lines
from aotlens.render.text.why import dynamo_lines, short_dynamo_lines
from aotlens.view.origins import origin_rows, unknown_text
from aotlens.view.quantities import (
    applied_steps,
    call_count,
    counted,
    human_ms,
    per_call,
    signature,
    target_summary,
)
from aotlens.view.shorten import end_cut
from aotlens.view.why import dynamo_counts, dynamo_summary

TWO_SCREENS = 100
"""Lines that a short page has at most, unless its sections with one row each are longer."""
FEW_LOSSES = 8
LONG_REASON = 140
"""Characters of a reason on a short page."""
SCALES = (1.0, 0.75, 0.5, 0.3, 0.1)
"""Shares of each list that are tried, until the page is short enough."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts to print beside the overview."""

    wrapper_source: bool = False
    stage: str | None = None
    """Only this stage's program (`forward`, `wrapper`, …), the difference `captured..functional` of two, or
    the kernels (`kernels`); None prints the overview."""
    is_full: bool = False
    """True for everything in the report, instead of the most important facts on two screens."""


def print_report(report: Report, console: Console, shown: Shown | None = None) -> None:
    """Print the report; colour only where the console has it (a terminal, and no NO_COLOR)."""
    print_lines(report_lines(report, page_width(console), shown or Shown()), console)


def report_text(report: Report, shown: Shown | None = None, width: int = WIDTH) -> str:
    """Return the report as plain text."""
    return to_text(report_lines(report, width, shown or Shown()))


def report_lines(report: Report, width: int, shown: Shown) -> Iterator[Text]:
    """Yield every line of the report. Raises UserError when no target has the requested stage."""
    if shown.stage is not None:
        yield from _stage_lines(report, shown.stage, width)
        return
    if shown.is_full:
        yield from _overview(report, Page(width), shown.wrapper_source)
        return
    for scale in SCALES:
        lines = tuple(_overview(report, Page(width, None, False, scale), shown.wrapper_source))
        if len(lines) <= TWO_SCREENS:
            break
    yield from lines


def _overview(report: Report, page: Page, wrapper_source: bool) -> Iterator[Text]:
    """Yield the report on a page of that kind."""
    yield from lacking_lines(report, page)
    yield from process_lines(report.log, page)
    yield from fitted(action_lines(report, page), page.width)
    yield from _report_findings(report, page)
    main = tuple(range(len(report.targets))) if page.is_full else main_targets(report.targets)
    for index in main:
        target = report.targets[index]
        lines = target_lines(target, replace(page, home=target.file), _title(report, index))
        yield from fitted(lines, page.width)
        if wrapper_source and target.wrapper:
            yield heading("Wrapper source")
            yield from _source_lines(target.wrapper.source)
            yield Text()
    others = [target for index, target in enumerate(report.targets) if index not in main]
    yield from fitted(other_target_lines(others, page), page.width)
    if report.log is not None:
        yield from fitted(listed_target_lines(report.log, page), page.width)
    yield from _dynamo_section(report, page)
    if report.ranks is not None:
        yield from fitted(rank_lines(report.ranks, page), page.width)
    if report.log is not None:
        yield from fitted(unused_record_lines(report.log, page), page.width)
    if not report.targets and not report.diagnostics:
        yield Text("no targets")


def _dynamo_section(report: Report, page: Page) -> Iterator[Text]:
    """Graph breaks, recompilations and constants; a short page has one line for each kind."""
    if report.dynamo is None or not any(dynamo_counts(report.dynamo)):
        return
    if page.is_full:
        yield rule("Dynamo", dynamo_summary(report.dynamo), page.width)
        yield from fitted(dynamo_lines(report.dynamo, page), page.width)
    else:
        yield from fitted(short_dynamo_lines(report.dynamo, page.width), page.width)


def lacking_lines(report: Report, page: Page) -> Iterator[Text]:
    """Yield what the script passed to `torch.compile` that is not compiled, and what may be missing."""
    losses = [record for record in report.not_compiled if record.is_loss]
    shown = page.first(losses, FEW_LOSSES)
    for record in shown:
        where = f"  {location(record.span)}" if record.span is not None else ""
        yield Text.assemble(("Not compiled  ", "bold yellow"), f"{record.name}{where}  {record.cause}")
        yield from paragraph(f"{record.reason} [{record.code}]", page.width, "  ")
    if len(losses) > len(shown):
        yield Text(f"and {len(losses) - len(shown)} more that are not compiled ({page.rest})", "dim")
    if report.incomplete is not None:
        yield from paragraph(f"Incomplete: {report.incomplete}", page.width, "", "bold yellow")
    if losses or report.incomplete is not None:
        yield Text()


def _report_findings(report: Report, page: Page) -> Iterator[Text]:
    """Yield the findings without a target; a short page does not repeat code that is not compiled."""
    if not page.is_full:
        reported = {(record.code, record.span) for record in report.not_compiled if record.is_loss}
        others = [finding for finding in report.diagnostics if (finding.code, finding.span) not in reported]
        lines = tuple(fitted(diagnostic_list(others, page), page.width))
        yield from (*lines, Text()) if lines else ()
        return
    for diagnostic in report.diagnostics:
        yield from fitted(diagnostic_lines(diagnostic, page.width), page.width)
        yield Text()


def _title(report: Report, index: int) -> str:
    """Return the target's name; with its number and signature when the report has several of that name."""
    target = report.targets[index]
    same = [position for position, other in enumerate(report.targets) if other.qualname == target.qualname]
    if len(same) == 1:
        return target.name
    return f"{target.name} #{same.index(index) + 1} {signature(target)}"


def target_lines(target: Target, page: Page, title: str) -> Iterator[Text]:
    """Yield one target: its header, then the sections that fit; diagnostics first on a short page."""
    yield rule(title, location(target.span) if target.span else target.qualname, page.width)
    yield Text.assemble(target_summary(target), (f" · {target.frontend} frontend", "dim"))
    yield Text()
    for section in _full_sections(target, page) if page.is_full else _short_sections(target, page):
        lines = tuple(section)
        if lines:
            yield from lines
            yield Text()


def _full_sections(target: Target, page: Page) -> tuple[Iterator[Text], ...]:
    width = page.width
    return (
        input_lines(target, width),
        output_lines(target, width),
        side_effect_lines(target, page),
        guard_lines(target, page),
        operator_lines(target, page),
        partition_lines(target.partition, page) if target.partition else iter(()),
        memory_lines(target.memory, page) if target.memory else iter(()),
        wrapper_lines(target, page),
        stage_table(target, width),
        kernel_lines(target, page),
        cuda_graph_lines(target.cuda_graph, width),
        _findings(target, width),
        origin_lines(target, page),
    )


def _short_sections(target: Target, page: Page) -> tuple[Iterator[Text], ...]:
    return (
        diagnostic_list(target.diagnostics, page),
        input_summary(target, page),
        output_summary(target, page),
        side_effect_lines(target, page),
        guard_lines(target, page),
        operator_lines(target, page),
        partition_lines(target.partition, page) if target.partition else iter(()),
        memory_lines(target.memory, page) if target.memory else iter(()),
        wrapper_lines(target, page),
        _compile_time(target, page.width),
        kernel_lines(target, page),
        cuda_graph_lines(target.cuda_graph, page.width),
        origin_lines(target, page),
    )


def origin_lines(target: Target, page: Page) -> Iterator[Text]:
    """Yield how the facts of a target from a log are known; a short page names the unknown ones."""
    if not target.origins:
        return
    if not page.is_full:
        yield from paragraph(unknown_text(target.origins), page.width, "", "dim")
        return
    yield heading("Source of the facts", "from a TORCH_TRACE log")
    styles = {"unknown": "yellow"}
    rows = [Row(row, (styles.get(row[0], "dim"), "", "dim")) for row in origin_rows(target.origins)]
    yield from table(rows, page.width)


def wrapper_lines(target: Target, page: Page) -> Iterator[Text]:
    """Yield the steps that run on each call; on a full page also the names of the others."""
    if target.wrapper is None:
        return
    applied = applied_steps(target)
    if not applied and not page.is_full:
        return
    yield heading("Wrapper", f"{counted(len(applied), 'step')} on each call")
    rows = [
        Row(
            (
                step.name,
                per_call(step.bytes_per_call),
                step.reason if page.is_full else end_cut(step.reason, LONG_REASON),
            ),
            ("cyan", "yellow", ""),
            tuple(site_lines(step.sites, " " * 6)) if page.is_full else (),
        )
        for step in applied
    ]
    yield from table(rows, page.width)
    unneeded = [step.name for step in target.wrapper.steps if not step.applied]
    if unneeded and page.is_full:
        yield from paragraph(f"not needed: {', '.join(unneeded)}", page.width, "  ", "dim")


def stage_table(target: Target, width: int) -> Iterator[Text]:
    """Each stage's program by its size, and the compile time by pipeline stage."""
    if target.stages:
        yield heading("Programs")
        rows = [
            Row((stage.name, str(call_count(target.stage(stage.name))), stage_origin(stage)))
            for stage in target.stages
        ]
        yield from table(rows, width, frozenset({1}))
    yield from _compile_time(target, width)


def _compile_time(target: Target, width: int) -> Iterator[Text]:
    if target.timings_ms:
        yield heading("Compile time", human_ms(sum(target.timings_ms.values())))
        yield from paragraph(timings_text(target), width, "  ")


def stage_origin(stage: Stage) -> str:
    """Return a stage's origin: `from joint`, or that it equals the one before."""
    if stage.same_as is not None:
        return f"changes nothing: same as {stage.same_as}"
    return f"from {stage.parent}" if stage.parent else "your code"


def _findings(target: Target, width: int) -> Iterator[Text]:
    for position, diagnostic in enumerate(target.diagnostics):
        if position:
            yield Text()
        yield from diagnostic_lines(diagnostic, width)


def _stage_lines(report: Report, name: str, width: int) -> Iterator[Text]:
    """Yield one stage's program of every target that has it, or the difference of two."""
    shown = [
        (target, lines)
        for target in report.targets
        if (lines := _shown_stage(target, name, width)) is not None
    ]
    if not shown:
        raise unknown_stage(report, name)
    for target, lines in shown:
        if len(shown) > 1:
            yield rule(target.name, name, width)
        yield from lines
    without = [target.name for target in report.targets if all(target is not other for other, _ in shown)]
    yield from (Text(f"# {target_name} has no {name}", "dim") for target_name in without)


def _shown_stage(target: Target, name: str, width: int) -> list[Text] | None:
    """Return the lines for one stage or a range of two; None when the target lacks it."""
    both = parse_range(name)
    if both is not None:
        difference = stage_difference(target, *both)
        return None if difference is None else list(stage_difference_lines(difference))
    if name == KERNELS:
        return list(fitted(kernel_lines(target, Page(width, target.file)), width)) or None
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
