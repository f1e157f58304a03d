"""Attribute the time of a compilation to phases, from the events that torch logged.

Invariant: every moment belongs to the innermost running phase, as in our own reports; an event without an end
counts until the last event of its compilation.
"""

import re
from collections import defaultdict
from functools import lru_cache
from weakref import WeakKeyDictionary

from aotlens.dynamo.compile_time import OTHER, PHASES
from aotlens.trace.facts import CompilationFacts
from aotlens.trace.logs.safe_text import safe_text

__all__ = ["last_phase", "seconds_by_phase"]

_NAME = re.compile(rb'"name": "([^"]{1,200})"')
_TIME = re.compile(rb'"ts": (\d{1,20}(?:\.\d{1,9})?)')
MAX_DEPTH = 200
"""The limit of nested phases: a hostile log may begin any number without an end."""

_SECONDS: WeakKeyDictionary[CompilationFacts, dict[str, float]] = WeakKeyDictionary()


def seconds_by_phase(facts: CompilationFacts) -> dict[str, float]:
    """Return wall seconds by phase, in the order in which the phases began.

    Memoised, because several parts of a report ask for it, and a compilation has hundreds of events.
    """
    if facts not in _SECONDS:
        _SECONDS[facts] = _seconds_by_phase(facts)
    return _SECONDS[facts]


def _seconds_by_phase(facts: CompilationFacts) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    open_phases: list[tuple[str, str]] = []
    last = 0.0
    for name, begins, moment in _events(facts):
        if open_phases and last:
            seconds[open_phases[-1][1]] += max(0.0, moment - last) / 1e6
        last = moment
        if begins and len(open_phases) < MAX_DEPTH:
            around = open_phases[-1][1] if open_phases else OTHER
            open_phases.append((name, _phase(name, around)))
        elif not begins:
            _close(open_phases, name)
    return {phase: total for phase, total in seconds.items() if total > 0}


def last_phase(facts: CompilationFacts) -> str:
    """Return the innermost phase that never ended, where the process died; empty if all ended."""
    open_phases: list[tuple[str, str]] = []
    for name, begins, _ in _events(facts):
        if begins:
            open_phases.append((name, ""))
        else:
            _close(open_phases, name)
    return open_phases[-1][0] if open_phases else ""


def _close(open_phases: list[tuple[str, str]], name: str) -> None:
    """Close the innermost phase of a name, and those in it, which an exception left open.

    An end whose begin the log lacks closes nothing.
    """
    for position in range(len(open_phases) - 1, -1, -1):
        if open_phases[position][0] == name:
            del open_phases[position:]
            return


def _phase(name: str, around: str) -> str:
    """Return the phase of an event; one without a phase of its own counts for the event around it."""
    return _own_phase(name) or around


@lru_cache(maxsize=4_096)
def _own_phase(name: str) -> str | None:
    return next((phase for start, phase in PHASES if name.startswith(start)), None)


@lru_cache(maxsize=4_096)
def _name(raw: bytes) -> str:
    return safe_text(raw.decode("utf-8", "replace"))


def _events(facts: CompilationFacts) -> list[tuple[str, bool, float]]:
    """Return the name of each event, whether it begins, and its time in microseconds."""
    events = []
    for record in facts.every("chromium_event"):
        text = facts.process.raw_text(record)  # there are hundreds of these in each compilation
        name, moment = _NAME.search(text), _TIME.search(text)
        begins = b'"ph": "B"' in text
        if name and moment and (begins or b'"ph": "E"' in text):
            events.append((_name(name[1]), begins, float(moment[1])))
    return events
