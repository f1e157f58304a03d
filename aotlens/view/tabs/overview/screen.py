"""The first screen: what was compiled, what it costs, what happens per call, and what to fix."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aotlens.diagnostics.failures import FAILURE_FAMILY
from aotlens.model.report import Memory, Partition, Report, Target, Verdict
from aotlens.model.spans import line_text
from aotlens.view.ledger import kind_name
from aotlens.view.logs import UNKNOWN_WHY, listed_text, processes_text, unknown_kinds_text
from aotlens.view.names import first_names, node_in_phase
from aotlens.view.origins import unknown_text
from aotlens.view.partition.saved import saved_total
from aotlens.view.quantities import call_count, counted, human_bytes, human_ms, per_call
from aotlens.view.tabs.dynamo import DYNAMO, dynamo_part, first_problem_lines
from aotlens.view.tabs.ledger import sites_link
from aotlens.view.tabs.overview.actions import action_lines, diagnostic_lines
from aotlens.view.tabs.overview.gpu import blocker_lines, costly_lines, gpu_parts
from aotlens.view.tabs.overview.largest import MOST_SAVED, alive_lines, memory_plot, peak_link, saved_lines
from aotlens.view.tabs.ranks import RANKS, rank_tab_lines
from aotlens.view.tabs.tables.rows import VERDICT_ROLES, Jump, Line, Link, Part
from aotlens.view.tabs.tradeoffs import tradeoff_lines
from aotlens.view.tabs.wrapper import ordered_steps
from aotlens.view.why import dynamo_counts

MOST_STEPS = 5
TIGHT_STEPS, TIGHT_ACTIONS = 2, 2
"""Lines on a small first screen about the wrapper, and about what to do."""
TIGHT_SENTENCE = 3
"""Rows of the first thing to do, which is never cut."""
LABEL_WIDTH = 10

ACTIONS = "What to do first"
SAVED, STEPS, FOUND = "Largest saved values", "On each call the wrapper", "Diagnostics"
COSTLY, BLOCKERS = "Costliest lines on the GPU", "Not in one CUDA graph"
"""Titles of sections, here and in the page."""

PHASES = {"forward": "forward", "backward": "backward", "inference": "graph"}


@dataclass(frozen=True, slots=True)
class Overview:
    """All lines of the tab; the available rows decide which come first."""

    facts: tuple[Line, ...]
    """What was compiled, and its cost."""
    tight_facts: tuple[Line, ...]
    """The same for little room."""
    further_facts: tuple[Line, ...]
    """What `tight_facts` leaves out."""
    changed: tuple[Line, ...]
    """The differences from the trace before."""
    saved: tuple[Line, ...]
    steps: tuple[Line, ...]
    """The wrapper steps of each call."""
    applied: int
    """The number of those steps."""
    actions: tuple[Line, ...]
    """What to fix first, over all targets."""
    diagnostics: tuple[Line, ...]
    """The diagnostics."""
    costly: tuple[Line, ...]
    """The lines that take most of the GPU time."""
    blockers: tuple[Line, ...]
    """The reasons why CUDA graphs cannot record the whole target."""
    below: tuple[tuple[Line, ...], ...]
    """Further sections, with their titles."""

    def lines(self, room: int | None = None) -> tuple[Line, ...]:
        """Return the whole tab.

        In `room` rows the first screen shows: what to do, what was compiled, peak memory and its line, the
        largest saved values, the wrapper steps, and the findings. Where the roomy form does not fit, the
        tight one comes first. A sentence about what to do is never cut in the roomy form, even if it needs
        more rows than the screen has.
        """
        since = titled("Since the last trace", self.changed)
        answered = spaced(
            (
                titled(ACTIONS, self.actions),
                self.facts,
                since,
                titled(SAVED, self.saved),
                titled(STEPS, self.steps),
                titled(FOUND, self.diagnostics),
            )
        )
        if room is not None and len(answered) > room:
            tight = self._tight(room - len(since))
            answered = spaced(((*tight[:1], *since, *tight[1:]), self.further_facts))
        costly, blockers = titled(COSTLY, self.costly), titled(BLOCKERS, self.blockers)
        return spaced((answered, costly, blockers, *self.below))

    def _tight(self, room: int) -> tuple[Line, ...]:
        """Return the first screen of a small terminal: every answer, and as many findings as fit."""
        actions = [action for action in self.actions[:TIGHT_ACTIONS] if action.jump is not None]
        answers = [*labelled("do first", tuple(actions)), *self.tight_facts]
        cut = (replace(line, wrap=False) for line in answers[1:])
        lines = [*answers[:1], *cut, *self.saved[:MOST_SAVED]]
        if actions:
            room -= TIGHT_SENTENCE - 1
        most = max(TIGHT_STEPS, room - len(lines) - len(self.diagnostics))
        fits = len(self.steps) <= most
        steps = self.steps if fits else (*self.steps[: most - 1], more_steps(self.applied - most + 1))
        lines += labelled("each call", tuple(replace(line, wrap=False) for line in steps))
        least = 1 if len(self.diagnostics) == 1 else 2
        return (*lines, *labelled("found", self.diagnostics[: max(least, room - len(lines))]))


def overview(report: Report, target: Target, changed: tuple[Line, ...] = ()) -> Overview:
    """Return the tab of a target; `changed` holds the differences from the trace before."""
    partition, memory = target.partition, target.memory
    peak = (memory_fact(memory, target),) if memory is not None else ()
    saved_facts = (saved_fact(partition),) if partition is not None else ()
    graphs, mode, ledger = graph_fact(target), mode_fact(report, target), tuple(ledger_facts(target))
    further = tuple(further_facts(target))
    lacking = tuple(lacking_facts(report))
    roomy = (compiled_fact(target), mode, graphs, *ledger, *saved_facts, *peak, *further)
    tight = (compiled_fact(target, mode_part(target)), *peak, graphs, *saved_facts)
    is_traced = bool(report.targets)  # else the target is only a name for the script
    return Overview(
        facts=(*lacking, *(roomy if is_traced else ())),
        tight_facts=(*lacking[:1], *(tight if is_traced else ())),
        further_facts=(mode, *ledger, *further) if is_traced else (),
        changed=changed,
        saved=tuple(saved_lines(target)),
        steps=tuple(wrapper_step_lines(target)),
        applied=sum(step.applied for step in ordered_steps(target.wrapper)),
        actions=tuple(action_lines(report, target)),
        diagnostics=tuple(diagnostic_lines(report, target)),
        costly=tuple(costly_lines(target)),
        blockers=tuple(blocker_lines(target.cuda_graph, target)),
        below=(
            dynamo_section(report),
            titled(RANKS, tuple(rank_tab_lines(report.ranks)) if report.ranks is not None else ()),
            titled("Live memory", tuple(memory_plot(target))),
            tradeoff_lines(partition) if partition is not None else (),
            titled("Alive at the peak", tuple(alive_lines(target))),
        ),
    )


def dynamo_section(report: Report) -> tuple[Line, ...]:
    """Graph breaks and recompilations of the whole script."""
    return titled(DYNAMO, tuple(first_problem_lines(report.dynamo))) if report.dynamo is not None else ()


def spaced(sections: Sequence[tuple[Line, ...]]) -> tuple[Line, ...]:
    """Return the sections that are not empty, with a blank line between two."""
    lines: list[Line] = []
    for section in sections:
        if section:
            lines += [*([Line()] if lines else []), *section]
    return tuple(lines)


def labelled(label: str, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Lines beside one label, not below a heading."""
    labelled_lines = []
    for index, line in enumerate(lines):
        first, *rest = line.parts
        start = Part(f"{label if index == 0 else '':<{LABEL_WIDTH}}", "dim")
        labelled_lines.append(replace(line, parts=(start, Part(first.text.lstrip(), first.role), *rest)))
    return tuple(labelled_lines)


def more_steps(hidden: int) -> Line:
    return Line((Part(f"… {counted(hidden, 'more step')}", "dim"),), jump=Jump("wrapper"))


def titled(title: str, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    return (Line((Part(title, "heading"),)), *lines) if lines else ()


def fact(label: str, *parts: Part, link: Link | None = None, jump: Jump | None = None) -> Line:
    return Line((Part(f"{label:<{LABEL_WIDTH}}", "dim"), *parts), link or Link(), jump)


def compiled_fact(target: Target, *more: Part) -> Line:
    link = Link((target.span,) if target.span else ())
    where = f"  {line_text(target.span)}" if target.span else ""
    return fact("compiled", Part(target.qualname, "title"), Part(where, "place"), *more, link=link)


def lacking_facts(report: Report) -> Iterator[Line]:
    """Yield what the script passed to `torch.compile` that is not compiled, and why targets may be
    missing."""
    for record in report.not_compiled:
        if record.is_loss:
            link = Link((record.span,)) if record.span is not None else Link()
            where = f"  {line_text(record.span)}" if record.span is not None else ""
            parts = (Part(record.name, "warning"), Part(where, "place"), Part(f"  {record.cause}", "dim"))
            yield fact("in eager", *parts, link=link, jump=Jump("diagnostics"))
    if report.incomplete is not None:
        failed = any(diagnostic.code.startswith(FAILURE_FAMILY) for diagnostic in report.diagnostics)
        why = Part(report.incomplete, "error" if failed else "warning")
        yield replace(fact("missing", why, jump=Jump("diagnostics")), wrap=True)
    if report.dynamo is not None and any(dynamo_counts(report.dynamo)):
        yield fact("dynamo", dynamo_part(report.dynamo), jump=Jump("why"))
    if report.log is not None and (listed := listed_text(report.log)):
        how = Part(f"; {report.log.path}::ID reads one", "dim")
        yield replace(fact("targets", Part(listed, "warning"), how), wrap=True)
    if several := processes_text(report.log):
        yield replace(fact("processes", Part(several, "warning")), wrap=True)
    if unknown := unknown_kinds_text(report.log):
        yield replace(fact("records", Part(unknown, "warning"), Part(f"; {UNKNOWN_WHY}", "dim")), wrap=True)


def frontend_name(target: Target) -> str:
    return {"dynamo": "torch.compile", "trace": "log of torch.compile"}.get(target.frontend, "direct")


def mode_part(target: Target) -> Part:
    return Part(f"  {target.mode} · {frontend_name(target)}", "dim")


def mode_fact(report: Report, target: Target) -> Line:
    more = Part(f" · {frontend_name(target)} · torch {report.torch}", "dim")
    return fact("mode", Part(target.mode, "accent"), more)


def ledger_facts(target: Target) -> Iterator[Line]:
    yield ledger_fact("inputs", tuple(kind_name(row.kind) for row in target.inputs), mutated_part(target))
    returned = tuple("output" for row in target.outputs if not row.is_side_effect)
    yield ledger_fact("outputs", returned, aliased_part(target))
    if target.side_effects:
        names = Part(short_list([row.name for row in target.side_effects]), "mutation")
        yield fact("effects", names, Part(" on each call", "dim"), jump=Jump("ledger"))


def further_facts(target: Target) -> Iterator[Line]:
    """Yield facts that a log lacks, the GPU, the comparison with eager, and the compile time."""
    if unknown := unknown_text(target.origins):
        yield fact("log", Part(unknown, "warning"))
    for label, parts, jump in gpu_parts(target):
        yield fact(label, *parts, jump=jump)
    if target.verified is not None:
        yield verdict_fact(target.verified)
    if target.timings_ms:
        slowest = sorted(target.timings_ms.items(), key=lambda item: -item[1])[:3]
        shown = ", ".join(f"{stage} {human_ms(elapsed_ms)}" for stage, elapsed_ms in slowest)
        total = sum(target.timings_ms.values())
        yield fact("time", Part(human_ms(total)), Part(f"  {shown}", "dim"))


def verdict_fact(verdict: Verdict) -> Line:
    """Return how a call compared with eager."""
    first = verdict.text.partition("\n")[0]
    return fact("verified", Part(verdict.outcome, VERDICT_ROLES[verdict.outcome]), Part(f"  {first}", "dim"))


def saved_fact(partition: Partition) -> Line:
    size, _, number = saved_total(partition).partition(" in ")
    parts = [Part(size, "saved"), Part(f" in {number}")]
    if partition.budget is not None:
        parts.append(Part(f" · budget {human_bytes(partition.budget.asked_bytes)}"))
    elif partition.default_bytes is not None and partition.default_bytes != partition.saved_bytes:
        parts.append(Part(f" · `default` would save {human_bytes(partition.default_bytes)}", "dim"))
    if partition.own is not None:
        parts.append(Part(f" · our solver would save {human_bytes(partition.own.saved_bytes)}", "dim"))
    return fact("saved", *parts, jump=Jump("saved"))


def graph_fact(target: Target) -> Line:
    graphs = [(PHASES[stage.name], call_count(stage)) for stage in target.stages if stage.name in PHASES]
    shown = " · ".join(f"{name} {counted(nodes, 'node')}" for name, nodes in graphs)
    return fact("graphs", Part(shown or "none"), jump=Jump("graphs") if graphs else None)


def ledger_fact(label: str, kinds: tuple[str, ...], special: Part) -> Line:
    tally = ", ".join(counted(number, kind) for kind, number in Counter(kinds).items())
    return fact(label, Part(tally or "none"), special, jump=Jump("ledger"))


def mutated_part(target: Target) -> Part:
    mutated = [row.name for row in target.inputs if row.mutation_type != "not_mutated"]
    return Part(f" · {short_list(mutated)} mutated" if mutated else "", "mutation")


def aliased_part(target: Target) -> Part:
    aliased = [row.name for row in target.outputs if row.base is not None]
    return Part(f" · {len(aliased)} alias another tensor" if aliased else "", "alias")


def short_list(names: list[str]) -> str:
    """Up to two names, then how many more."""
    return first_names(names, 2 if len(names) == 2 else 1)


def memory_fact(memory: Memory, target: Target) -> Line:
    """Return the peak with its node and line."""
    where = f"  {line_text(memory.peak_span, target.file)}" if memory.peak_span else ""
    node = f": {node_in_phase(memory.peak_node, memory.peak_phase)}" if memory.peak_node else ""
    size = Part(human_bytes(memory.peak_bytes), "saved")
    return fact("peak", size, Part(node, "name"), Part(where, "place"), link=peak_link(memory))


def wrapper_step_lines(target: Target) -> Iterator[Line]:
    if target.wrapper is None:
        return
    steps = ordered_steps(target.wrapper)
    applied = [step for step in steps if step.applied]
    for step in applied[:MOST_STEPS]:
        cost = f"  {per_call(step.bytes_per_call)}" if step.bytes_per_call else ""
        parts = (
            Part("  + ", "ok"),
            Part(step.name, "name"),
            Part(cost, "warning"),
            Part(f"  {step.reason}", "dim"),
        )
        yield Line(parts, sites_link(step.sites), Jump("wrapper", f"step:{step.name}"), wrap=True)
    rest, skipped = len(applied) - MOST_STEPS, len(steps) - len(applied)
    if rest > 0:
        yield Line((Part(f"  … {counted(rest, 'more step')}", "dim"),), jump=Jump("wrapper"))
    if not applied:
        yield Line((Part("  calls the graph and does nothing else", "dim"),), jump=Jump("wrapper"))
    if skipped:
        yield Line((Part(f"  - {counted(skipped, 'step')} not needed", "dim"),), jump=Jump("wrapper"))
