"""The rows of conditions on symbolic sizes that the compilation assumed."""

import re
from collections.abc import Iterator
from typing import Any

import torch

from aotlens.capture.dynamo import user_name
from aotlens.capture.records import Captured
from aotlens.capture.symbols.guards import GuardLog
from aotlens.ir.origin import Origin, site_of
from aotlens.model import report as rows
from aotlens.model.spans import source_line
from aotlens.torch_api.symbolic import print_expression

APART = "the sizes 0 and 1 are specialised"
EQUAL = "the sizes were equal, and are one symbol"
DYNAMO = "Dynamo decided it here"
BACKEND = "torch or the backend decided it; no line of yours asked"

_SIZE = re.compile(r"\.size\(\)\[")
"""A size in Dynamo's text: `x.size()[0]`."""


def build_guards(captured: Captured) -> tuple[rows.Guard, ...]:
    """Return one row per condition, in order of creation, those of plain sizes first."""
    environment = captured.fake_mode.shape_env
    if environment is None:
        return ()
    names = _Names(captured, environment)
    by_expression = {
        guard.expression: guard
        for guard in (*names.guards(), *_recorded_guards(environment, names, captured))
    }
    return tuple(by_expression.values())


class _Names:
    """Symbols by the user's names for sizes: `x.shape[0]`."""

    def __init__(self, captured: Captured, environment: Any) -> None:
        self._environment = environment
        self._names: dict[str, str] = {}
        self._equal: list[rows.Guard] = []
        for captured_input in captured.flat_inputs:
            if isinstance(captured_input.argument, torch.SymInt):
                self._add(captured_input.argument, captured_input.slot.name)
            elif captured_input.is_tensor and captured_input.duplicate_of is None:
                for dim, size in enumerate(captured_input.fake.shape):
                    self._add(size, f"{captured_input.slot.name}.shape[{dim}]")

    def _add(self, size: Any, name: str) -> None:
        """Name a symbol after its first size; any other size that it stands for is a guard of equality."""
        if not isinstance(size, torch.SymInt) or not hasattr(size.node, "expr"):  # a ragged size has none
            return
        if not size.node.expr.is_symbol:
            return
        name = _SIZE.sub(".shape[", name)
        known = self._names.setdefault(str(size.node.expr), name)
        if known != name:
            self._equal.append(rows.Guard(f"{name} == {known}", EQUAL))

    def guards(self) -> Iterator[rows.Guard]:
        """Yield the conditions on sizes before the function runs."""
        yield from self._equal
        for symbol, values in self._environment.var_to_range.items():
            if str(symbol) in self._names and values.lower == 2:
                yield rows.Guard(f"{self._names[str(symbol)]} >= 2", APART)

    def text(self, expression: Any) -> str:
        names = {str(symbol): self._name(symbol) for symbol in expression.free_symbols}
        return print_expression(expression, names)

    def _name(self, symbol: Any) -> str:
        known = self._names.get(str(symbol))
        if known is not None:
            return known
        source = next(iter(self._environment.var_to_sources.get(symbol, ())), None)
        text = "" if source is None else _SIZE.sub(".shape[", user_name(source.name))
        return str(symbol) if not text or text.startswith("__") else text


def _recorded_guards(environment: Any, names: _Names, captured: Captured) -> Iterator[rows.Guard]:
    log = environment.guards
    origins = log.origins if isinstance(log, GuardLog) else {}
    for index, guard in enumerate(log):
        if guard.expr.is_number:
            continue
        if index in origins:
            site, reason = site_of(origins[index]), _reason(origins[index])
        else:
            site, reason = _dynamo_site(guard.sloc.maybe_user_loc, captured), DYNAMO
        if site is None:
            reason = BACKEND
        sites = () if site is None else (site,)
        yield rows.Guard(names.text(guard.expr), reason, site.span if site else None, sites)


def _reason(origin: Origin) -> str:
    if origin.backward:
        return "the backward of this expression needs to know"
    return f"`{origin.op}` needs to know" if origin.op else "this expression needs to know"


def _dynamo_site(location: str | None, captured: Captured) -> rows.Site | None:
    """Return the line that Dynamo recorded as `text # file:line in function`, with a shortened path."""
    match = re.search(r"^(?P<text>.*)  # (?P<file>[^#]*):(?P<line>\d+) in \S+$", location or "")
    if match is None:
        return None
    files = {span.file for call in captured.calls for span in call.origin.location.spans}
    if captured.subject.span is not None:
        files.add(captured.subject.span.file)
    number = int(match["line"])
    for file in sorted(path for path in files if path.endswith(match["file"])):
        line = source_line(file, number)
        text = line.strip()
        if text == match["text"]:
            start, end = len(line) - len(line.lstrip()), len(line.encode())
            return rows.Site(rows.Span(file, number, start, number, end), text)
    return None
