"""Divide the compile time of a log among the user's lines.

Invariant: the seconds of all lines add up to those of all phases.  torch logs no time of a line: generating
and building code is divided evenly among the generated kernels of a compilation, and then among their lines;
all other phases belong to the line of the function.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from aotlens.dynamo.compile_time import CODE_PHASES
from aotlens.model.dynamo import LineSeconds
from aotlens.model.kernels import Kernel
from aotlens.model.source import Span
from aotlens.trace.compiled_functions import compiled_function
from aotlens.trace.facts import CompilationFacts
from aotlens.trace.phases import seconds_by_phase
from aotlens.trace.source.lines import Locate

__all__ = ["line_seconds"]

KernelsOf = Callable[[CompilationFacts], Sequence[Kernel]]


def line_seconds(
    compilations: Iterable[CompilationFacts], kernels_of: KernelsOf, locate: Locate
) -> tuple[LineSeconds, ...]:
    """Return the seconds of each line, the costliest first."""
    lines: dict[tuple[str, int], tuple[Span, float]] = {}
    for facts in compilations:
        for span, seconds in _shares(facts, kernels_of(facts), locate):
            key = (span.file, span.line)
            first, total = lines.get(key, (span, 0.0))
            lines[key] = (first, total + seconds)
    rows = (LineSeconds(span, seconds) for span, seconds in lines.values() if seconds > 0)
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _shares(
    facts: CompilationFacts, kernels: Sequence[Kernel], locate: Locate
) -> Iterator[tuple[Span, float]]:
    phases = seconds_by_phase(facts)
    whole = sum(phases.values())
    generated = [kernel for kernel in kernels if kernel.kind == "generated" and kernel.spans]
    code = sum(phases.get(phase, 0.0) for phase in CODE_PHASES) if generated else 0.0
    for kernel in generated:
        spans = {(span.file, span.line): span for span in reversed(kernel.spans)}
        for span in spans.values():
            yield span, code / len(generated) / len(spans)
    yield locate(compiled_function(facts, locate).first_line, None), whole - code
