"""Read what Dynamo did: compilations, graph breaks, recompilations, guards, constants, caches."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from aotlens.dynamo.break_messages import EFFECTS, break_code, break_reason, message_parts
from aotlens.dynamo.hints import Library, break_hint
from aotlens.dynamo.user_names import state_names, user_name
from aotlens.model.dynamo import (
    Break,
    BreakEffect,
    CacheUse,
    Cause,
    CauseKind,
    Compilation,
    CompileSeconds,
    Dynamo,
    DynamoFunction,
    Seconds,
    Specialisation,
)
from aotlens.model.report import Guard, Span
from aotlens.model.source import Related
from aotlens.model.spans import is_library_path, site_at
from aotlens.model.target_records import BUILT_IN
from aotlens.trace.compiled_functions import CompiledFunction, compiled_function, logged_frames
from aotlens.trace.facts import CompilationFacts
from aotlens.trace.graphs.records import Line
from aotlens.trace.phases import seconds_by_phase
from aotlens.trace.source.lines import Locate

__all__ = ["dynamo_of", "guards_of"]

_BROKEN = re.compile(r"Graph break in user code at (.+?):(\d{1,9})$", re.MULTILINE)
_REASON = re.compile(r"^(?:Graph Break )?Reason: ", re.MULTILINE)
_OPERANDS = re.compile(r" \[<class .*$")
_SITE = re.compile(r"#\s*(.*?)\s*#\s*(\S+):(\d{1,9}) in (\S+)")
_MISMATCH = re.compile(
    r"tensor '(.+?)' (dtype|rank|size|stride|device|requires_grad|dispatch key set) mismatch"
    r"(?: at index (\d+))?\.? expected (.+?)(?:, actual (.+?))?\.?$"
)
_EQUAL = re.compile(r"^(.+?) == (.+)$")
MAX_REASONS = 50


def dynamo_of(
    compilations: Sequence[CompilationFacts],
    targets: Callable[[CompilationFacts], tuple[str, ...]],
    locate: Locate,
) -> Dynamo:
    """Return what Dynamo did, by function; a function that several processes compile alike counts once."""
    groups: dict[tuple[object, ...], list[tuple[CompilationFacts, CompiledFunction]]] = {}
    for facts in compilations:
        function = compiled_function(facts, locate)
        short = function.name.rpartition(".")[2]
        groups.setdefault((id(facts.process), function.file, short), []).append((facts, function))
    functions: dict[object, DynamoFunction] = {}
    for entries in groups.values():
        own = _function(entries, targets, locate)
        functions.setdefault(_behaviour(own), own)
    return Dynamo(tuple(_with_each_break_once(tuple(functions.values()))), _compile_seconds(compilations))


def _behaviour(function: DynamoFunction) -> object:
    """Return a key that is equal for processes that compile a function alike: all but times."""
    causes = tuple((compilation.part, compilation.cause) for compilation in function.compilations)
    breaks = tuple((entry.span, entry.reason) for entry in function.breaks)
    return function.qualname, function.span, causes, breaks, function.specialisations, function.limit_hit


def _with_each_break_once(functions: Sequence[DynamoFunction]) -> Iterator[DynamoFunction]:
    """Leave out a break that another function has: several library functions stop below one line."""
    known: set[object] = set()
    for function in functions:
        keys = [(entry.span, entry.reason, entry.related) for entry in function.breaks]
        breaks = tuple(entry for entry, key in zip(function.breaks, keys, strict=True) if key not in known)
        known.update(keys)
        yield replace(function, breaks=breaks)


def _function(
    entries: list[tuple[CompilationFacts, CompiledFunction]],
    targets: Callable[[CompilationFacts], tuple[str, ...]],
    locate: Locate,
) -> DynamoFunction:
    first = next((function for _, function in entries if not function.part), entries[0][1])
    breaks: dict[object, Break] = {}
    constants: dict[object, Specialisation] = {}
    for facts, _ in entries:
        for entry in _breaks(facts, first.name, locate):
            breaks.setdefault((entry.span, entry.reason), entry)
        for constant in _specialisations(facts, locate):
            constants.setdefault((constant.name, constant.value), constant)
    return DynamoFunction(
        first.name.rpartition(".")[2] if first.name.count(".") > 2 else first.name,
        first.name,
        locate(Line(first.file, first.line, first.name, ""), None),
        None,
        tuple(_compilation(facts, function, targets(facts), locate) for facts, function in entries),
        tuple(sorted(breaks.values(), key=lambda entry: (entry.span.file, entry.span.line))),
        tuple(constants.values()),
        limit_hit=any("recompile_limit" in facts.metric("fail_reason") for facts, _ in entries),
    )


def _compilation(
    facts: CompilationFacts, function: CompiledFunction, targets: tuple[str, ...], locate: Locate
) -> Compilation:
    total, backend = _number(facts, "entire_frame_compile_time_s"), _number(facts, "backend_compile_time_s")
    seconds = Seconds(max(0.0, total - backend), backend, total)
    cause, has_ended = _cause(facts, locate), bool(facts.every("compilation_metrics"))
    return Compilation(facts.compilation.id, function.part, targets, seconds, cause, has_ended)


def _number(facts: CompilationFacts, name: str) -> float:
    text = facts.metric(name)
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,12})?", text) else 0.0


def _cause(facts: CompilationFacts, locate: Locate) -> Cause | None:
    """Return the guard that failed; of several, that of the compilation that was tried last."""
    records = facts.every("recompile_reasons")
    if not records:
        return None
    text = facts.process.text(records[-1])
    if text.lstrip().startswith("["):  # torch of 2025 wrote a list
        try:
            text = "\n".join(str(reason) for reason in json.loads(text)[:MAX_REASONS])
        except (ValueError, RecursionError, TypeError):
            return None
    reason = next((line for line in text.split("\n") if line.strip()), "")
    against, separator, guard = reason.partition(": ")
    if not separator or not re.fullmatch(r"!?[\d/-]+", against.strip()):
        against, guard = "", reason
    guard = re.split(r"\s+# ", guard, maxsplit=1)[0].strip()
    frames = logged_frames(text)
    caller = facts.caller
    call = locate(Line(caller.file, caller.line, caller.function, caller.code), None) if caller else None
    span = locate(frames[-1], None) if frames else None
    return _classified(guard, span, call, against.strip())


def _classified(guard: str, span: Span | None, call: Span | None, against: str) -> Cause:
    shown = user_name(guard)
    if match := _MISMATCH.search(guard):
        kinds: dict[str, CauseKind] = {
            "size": "size",
            "stride": "stride",
            "rank": "rank",
            "dtype": "dtype",
            "device": "device",
            "requires_grad": "requires_grad",
            "dispatch key set": "dispatch keys",
        }
        name = user_name(match[1])
        if match[2] in ("size", "stride"):
            name = f"{name}.shape[{match[3]}]" if match[2] == "size" else f"{name}.stride({match[3]})"
        return Cause(shown, kinds[match[2]], name, _value(match[4]), _value(match[5]), span, call, against)
    if "GLOBAL_STATE" in guard:
        name = state_names(shown.partition(": ")[2]) or "mode"
        return Cause(shown, "mode", name, "", "", span, call, against)
    if ".size()[" in guard or ".shape[" in shown:
        return Cause(shown, "size", _first_size(shown), "", "", span, call, against)
    if match := _EQUAL.match(shown):
        kind: CauseKind = "length" if match[1].startswith("len(") else "value"
        kind = "number" if re.fullmatch(r"-?[\d.]+", match[2]) and kind == "value" else kind
        return Cause(shown, kind, match[1], match[2], "", span, call, against)
    words: tuple[tuple[str, CauseKind], ...] = (
        ("type_id", "type"),
        ("obj_id", "object"),
        ("dict_contains", "keys"),
    )
    kind = next((kind for word, kind in words if word in guard), "other")
    inner = re.search(r"\(([^(),]+)[,)]", shown)
    return Cause(shown, kind, inner[1] if inner else shown, "", "", span, call, against)


def _value(text: str | None) -> str:
    """Return the value: `requires_grad=0` is 0; torch omits the other value of a flag."""
    return (text or "").rpartition("=")[2]


def _first_size(shown: str) -> str:
    match = re.search(r"[\w.\[\]'\"]+\.shape\[\d+\]", shown)
    return match[0] if match else shown


def _breaks(facts: CompilationFacts, owner: str, locate: Locate) -> Iterator[Break]:
    for record in facts.every("dynamo_graph_break_reason"):
        text = facts.process.text(record)
        body = _body(text)
        traceback = text.partition("User code traceback:")[2].partition("Traceback (most recent")[0]
        frames = logged_frames(traceback)
        stopped = frames[-1] if frames else _broken_line(text)
        if stopped is None:
            continue
        line = _user_line(facts, frames) or stopped
        related = (Related(locate(stopped, None), f"Dynamo stops here, in `{stopped.function}`"),)
        library = None if line is stopped else Library(_is_package(stopped.file), line in frames)
        root = _root_cause(body)
        what, explanation, hint = message_parts(root)
        effect: BreakEffect = next((kind for words, kind in EFFECTS if body.startswith(words)), "graph split")
        code = break_code(text)
        yield Break(
            locate(line, None),
            line.code,
            code,
            break_reason(code, what, explanation, in_library=library is not None),
            break_hint(code, line.code, hint, library, explanation),
            effect,
            related if line is not stopped else (),
            splits=(owner,) if effect == "graph split" else (),
            compilations=(facts.compilation.id,),
        )


def _broken_line(text: str) -> Line | None:
    """Return the line that the message names, for a break whose stack was not logged."""
    broken = _BROKEN.search(text)
    return None if broken is None else Line(broken[1], int(broken[2]), "", "")


def _is_package(file: str) -> bool:
    """Return True for a file of an installed package other than torch."""
    return bool(re.search(r"/(?:site|dist)-packages/(?!torch/)", file))


def _body(text: str) -> str:
    """Return what follows the sentence with the line.

    torch before 2.8 wrote `Reason: Unsupported: builtin: print [<class …>] True`, without an explanation.
    """
    reason = _REASON.search(text)
    body = text[reason.end() :] if reason is not None else text
    first, newline, rest = body.partition("\n")
    return f"{_OPERANDS.sub('', first.removeprefix('Unsupported: '))}{newline}{rest}"


def _user_line(facts: CompilationFacts, frames: list[Line]) -> Line | None:
    """Return the innermost line outside of libraries: of the traced code, else of what called it."""
    callers = (Line(frame.file, frame.line, frame.function, frame.code) for frame in facts.stack[:-1])
    own = (line for line in reversed([*callers, *frames]) if not is_library_path(line.file))
    return next(own, None)


def _root_cause(body: str) -> str:
    """Return the cause, which follows the sentence about Dynamo's current operation."""
    paragraphs = body.partition("User code traceback:")[0].split("\n\n", 1)
    is_frame = paragraphs[0].startswith("Encountered graph break when") or any(
        paragraphs[0].startswith(words) for words, _ in EFFECTS
    )
    return paragraphs[1] if is_frame and len(paragraphs) > 1 else body


def _specialisations(facts: CompilationFacts, locate: Locate) -> Iterator[Specialisation]:
    for record in facts.every("symbolic_shape_specialization"):
        value = facts.value(record)
        sources = value.get("sources")
        source = str(sources[0]) if isinstance(sources, list) and sources else str(value.get("symbol", ""))
        frames = facts.process.stack(value.get("user_stack"))
        frame = frames[-1] if frames else None
        span = locate(Line(frame.file, frame.line, frame.function, frame.code), None) if frame else None
        yield Specialisation(
            user_name(source),
            str(value.get("value", "")),
            str(value.get("symbol", "")),
            "compared",
            str(value.get("reason", "")) or "torch made it a constant",
            span,
            frame.code if frame else "",
        )


def guards_of(facts: CompilationFacts, locate: Locate) -> tuple[Guard, ...]:
    """Return conditions on sizes and specialised plain values, from the logged guard tree."""
    guards: dict[str, Guard] = {}
    for line in facts.text("dynamo_cpp_guards_str").split("\n"):
        kind, _, rest = line.partition(": ")
        is_size = "LAMBDA_GUARD" in kind and (".size()[" in rest or ".stride()[" in rest)
        is_value = "EQUALS_MATCH" in kind and rest.startswith(("L[", "G["))
        if not is_size and not is_value:
            continue
        expression = user_name(re.split(r"\s+# ", rest, maxsplit=1)[0].strip())
        if is_value and ("__builtins" in expression or "__import" in expression):
            continue
        reason = "a call with other sizes recompiles" if is_size else BUILT_IN
        span = _guard_span(rest, facts, locate)
        sites = (site_at(span),) if span is not None else ()
        guards.setdefault(expression, Guard(expression, reason, span, sites))
    return tuple(guards.values())


def _guard_span(text: str, facts: CompilationFacts, locate: Locate) -> Span | None:
    """Return the span; the tree has only the last parts of a path, which must match a file of the log."""
    match = _SITE.search(text)
    if match is None:
        return None
    known = [name for name in facts.process.strings.values() if name.endswith(match[2]) and name]
    if len(known) != 1:
        return None
    return locate(Line(known[0], int(match[3]), match[4], match[1]), None)


def _compile_seconds(compilations: Iterable[CompilationFacts]) -> CompileSeconds:
    phases: dict[str, float] = {}
    total = 0.0
    counts: dict[str, list[int]] = {}
    for facts in compilations:
        by_phase = seconds_by_phase(facts)
        for phase, seconds in by_phase.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
        total += sum(by_phase.values()) or _number(facts, "entire_frame_compile_time_s")
        for name, row in _cache_counts(facts):
            uses = counts.setdefault(name, [0, 0, 0])
            for index, count in enumerate(row):
                uses[index] += count
    caches = tuple(CacheUse(name, *row) for name, row in counts.items() if any(row))
    return CompileSeconds(total, sum(phases.values()), phases, caches=caches)


_CACHES = (("AOTAutograd", "aotautograd_cache"), ("Inductor", "fx_graph_cache"))


def _cache_counts(facts: CompilationFacts) -> Iterator[tuple[str, tuple[int, int, int]]]:
    for name, kind in _CACHES:
        hit, miss, bypass = (len(facts.every(f"{kind}_{word}")) for word in ("hit", "miss", "bypass"))
        yield name, (hit, miss, bypass)
