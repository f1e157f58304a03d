"""Reports to JSON and back, by reflection over the records.

Invariant: `decode(encode(report)) == report`, and equal reports give equal text.  Unknown keys are ignored,
so that a report with additions of the same schema major still reads; a newer major is one clear error.
"""

import base64
import json
import types
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, lru_cache
from sys import intern
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from aotlens.errors import ReportError
from aotlens.model.parsing import no_collection, parsed
from aotlens.model.report import SCHEMA, Report, Span, Target, Tensor
from aotlens.model.stage_changes import (
    CUDA_GRAPH,
    KERNELS,
    WRAPPER,
    parse_range,
    stage_difference,
    unknown_stage,
)

T = TypeVar("T")
Convert = Callable[[Any], Any]

_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_ROW_DEPTH = 6
"""From this nesting on a value is on one line: report, targets, target, stages, stage, nodes, *node*."""

KEYS = {"from_": "from"}
"""Record fields whose JSON key is a Python keyword."""

PARTS = {
    WRAPPER: ("wrapper",),
    KERNELS: ("gpu_totals", "gpu_lines", "kernels", "gpu_assumptions", "gpu_error", "cuda_graph"),
    CUDA_GRAPH: ("cuda_graph",),
}
"""The target's keys of parts that are no graph."""
PRESENT_IF = {KERNELS: ("kernels", "gpu_error")}
"""Of these keys, those that say whether the part exists, where not all of them do."""

REPEATED = (Span, Tensor)
NAME_LENGTH = 120

_SCALARS: dict[object, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int,), float: (int, float)}
_JSON_NAMES = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}


def dumps(report: Report, indent: int | None = 2) -> str:
    """Return the report as JSON text, keys in the order of the records' fields.

    With an indent, one graph node is one line: diffs are readable, and large graphs print fast.
    """
    return _COMPACT(encode(report)) if indent is None else _indented(encode(report), " " * indent, 0)


def loads(text: str) -> Report:
    """Return the report in JSON text. Raises ReportError when it is no report, or one of a newer schema."""
    try:
        data = parsed(text)
    except json.JSONDecodeError as error:
        raise ReportError(
            f"not a report: line {error.lineno}, column {error.colno} is not JSON ({error.msg})"
        ) from error
    del text  # it may take as much memory as what was read from it
    return decode(data)


def stage_json(report: Report, stage: str) -> str:
    """Return one stage, or the difference `A..B` of two, of every target that has it, as JSON text.

    The wrapper and the kernels have the same keys as in the whole report.
    """
    rows: list[dict[str, object]] = []
    for target in report.targets:
        stage_data = _stage_data(target, stage)
        if stage_data is not None:
            rows.append({"name": target.name, "qualname": target.qualname, **stage_data})
    if not rows:
        raise unknown_stage(report, stage)
    return _indented({"schema": SCHEMA, "targets": rows}, "  ", 0)


def _stage_data(target: Target, stage: str) -> dict[str, object] | None:
    """Return the part of one target that `--stage` selects; None when the target lacks it."""
    if stage in PARTS:
        data = _record_encoder(Target)(target)
        is_present = any(data[key] for key in PRESENT_IF.get(stage, PARTS[stage]))
        return {key: data[key] for key in PARTS[stage]} if is_present else None
    both = parse_range(stage)
    record: Any = stage_difference(target, *both) if both is not None else target.stage(stage)
    if record is None:
        return None
    return {"difference" if both is not None else "stage": _record_encoder(type(record))(record)}


def encode(report: Report) -> dict[str, object]:
    """Return the report as JSON data: dicts, lists, strings, numbers, booleans and None."""
    data: dict[str, object] = _encoder(Report)(report)
    return data


def decode(data: object) -> Report:
    """Return the report in JSON data. Raises ReportError that names the invalid key."""
    if not isinstance(data, dict) or not isinstance(data.get("schema"), str):
        raise ReportError(f'not a report: no key "schema"; expected a JSON object with schema "{SCHEMA}"')
    _check_schema(data["schema"])
    try:
        with no_collection():
            report: Report = _decoder(Report)(data)
    except _MisfitError as misfit:
        raise ReportError(f"bad report: {misfit.path() or 'the top level'} {misfit.problem}") from None
    return report


def encode_record(record: Any) -> dict[str, object]:
    """Any frozen record as JSON data, as reports are; bytes as base64 text."""
    kind: Any = type(record)
    data: dict[str, object] = _encoder(kind)(record)
    return data


def decode_record(kind: type[T], data: object) -> T:
    """Return a record of that type in JSON data. Raises ReportError that names the invalid key."""
    hint: Any = kind
    try:
        record: T = _decoder(hint)(data)
    except _MisfitError as misfit:
        raise ReportError(f"{misfit.path() or 'the top level'} {misfit.problem}") from None
    return record


def json_key(name: str) -> str:
    """Return the JSON key of a record's field."""
    return KEYS.get(name, name)


def _indented(value: Any, step: str, depth: int) -> str:
    if depth >= _ROW_DEPTH or not value or not isinstance(value, dict | list):
        return _COMPACT(value)
    if isinstance(value, dict):
        marks = "{}"
        rows = [f"{_COMPACT(key)}: {_indented(entry, step, depth + 1)}" for key, entry in value.items()]
    else:
        marks = "[]"
        rows = [_indented(entry, step, depth + 1) for entry in value]
    inner = f",\n{step * (depth + 1)}".join(rows)
    return f"{marks[0]}\n{step * (depth + 1)}{inner}\n{step * depth}{marks[1]}"


def _check_schema(schema: str) -> None:
    name, _, major = SCHEMA.partition("/")
    found_name, _, found_version = schema.partition("/")
    found_major = found_version.partition(".")[0]
    if found_name != name or not found_major.isdigit():
        raise ReportError(f'not a report: schema is "{schema}"; expected "{SCHEMA}"')
    if int(found_major) > int(major):
        raise ReportError(
            f'report of a newer schema: found "{schema}", this aotlens reads up to "{SCHEMA}"; update aotlens'
        )


class _MisfitError(Exception):
    """A value that does not fit its field; each caller adds its part of the path."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = []

    def path(self) -> str:
        return "".join(reversed(self.steps)).lstrip(".")


@cache
def _encoder(hint: Any) -> Convert:
    """Return the function that converts a value of this type into JSON data; records need no check."""
    if is_dataclass(hint):
        return _record_encoder(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union) and type(None) in arguments:
        some = _encoder(_without_none(arguments))
        return lambda value: None if value is None else some(value)
    if origin is tuple and arguments[-1] is Ellipsis:
        each = _encoder(arguments[0])
        return lambda value: [each(entry) for entry in value]
    if origin is tuple:
        every = tuple(_encoder(item) for item in arguments)
        return lambda value: [convert(entry) for convert, entry in zip(every, value, strict=True)]
    if hint is bytes:
        return lambda value: base64.b64encode(value).decode()
    return dict if origin is dict else _same


def _record_encoder(record: Any) -> Convert:
    hints = get_type_hints(record)
    rows = tuple((json_key(entry.name), entry.name, _encoder(hints[entry.name])) for entry in fields(record))
    return lambda value: {key: convert(getattr(value, name)) for key, name, convert in rows}


@cache
def _decoder(hint: Any) -> Convert:
    """Return the function that converts JSON data into a value of this type, or raises _MisfitError."""
    if is_dataclass(hint):
        return _record_decoder(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _literal_decoder(arguments)
    if origin in (types.UnionType, Union):
        return _union_decoder(arguments)
    if origin is tuple:
        return _tuple_decoder(arguments)
    if origin is dict:
        return _dict_decoder(arguments[1])
    if hint is bytes:
        return _bytes
    return _scalar_decoder((hint,))


def _record_decoder(record: Any) -> Convert:
    hints = get_type_hints(record)
    rows = tuple(
        (json_key(entry.name), entry.name, _decoder(hints[entry.name]), _is_required(entry))
        for entry in fields(record)
    )
    finished = _interned if record in REPEATED else _same

    def convert(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _MisfitError(f"should be an object, found {_show(data)}")
        values = {}
        for key, name, inner, required in rows:
            if key not in data:
                if required:
                    raise _MisfitError(f'lacks the key "{key}"')
                continue
            try:
                values[name] = inner(data[key])
            except _MisfitError as misfit:
                misfit.steps.append(f".{key}")
                raise
        return finished(record(**values))

    return convert


@lru_cache(maxsize=1 << 14)
def _interned(record: T) -> T:
    """Return the first record that equals this one: large reports hold each thousands of times."""
    return record


def _is_required(entry: Field[Any]) -> bool:
    return entry.default is MISSING and entry.default_factory is MISSING


def _tuple_decoder(arguments: tuple[Any, ...]) -> Convert:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        each = _decoder(arguments[0])
        return lambda data: tuple(_at(index, each, entry) for index, entry in enumerate(_a_list(data)))
    every = tuple(_decoder(item) for item in arguments)

    def convert(data: Any) -> Any:
        if len(_a_list(data)) != len(every):
            raise _MisfitError(f"should have {len(every)} entries, found {len(data)}")
        return tuple(_at(index, every[index], entry) for index, entry in enumerate(data))

    return convert


def _dict_decoder(item: Any) -> Convert:
    each = _decoder(item)

    def convert(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _MisfitError(f"should be an object, found {_show(data)}")
        return {key: _at(key, each, entry) for key, entry in data.items()}

    return convert


def _union_decoder(members: tuple[Any, ...]) -> Convert:
    if type(None) in members:
        some = _decoder(_without_none(members))
        return lambda data: None if data is None else some(data)
    return _scalar_decoder(members)


def _scalar_decoder(members: tuple[Any, ...]) -> Convert:
    accepted = tuple(kind for member in members for kind in _SCALARS[member])
    names = " or ".join(_JSON_NAMES[member] for member in members)

    def convert(data: Any) -> Any:
        if not isinstance(data, accepted) or (isinstance(data, bool) and bool not in members):
            raise _MisfitError(f"should be {names}, found {_show(data)}")
        # Names of nodes and operators stand in a report again and again.
        return intern(data) if type(data) is str and len(data) <= NAME_LENGTH else data

    return convert


def _literal_decoder(allowed: tuple[Any, ...]) -> Convert:
    def convert(data: Any) -> Any:
        if data not in allowed:
            raise _MisfitError(f"should be one of {', '.join(map(str, allowed))}; found {_show(data)}")
        return data

    return convert


def _bytes(data: Any) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (TypeError, ValueError):
        raise _MisfitError(f"should be base64 text, found {_show(data)}") from None


def _at(step: int | str, convert: Convert, data: Any) -> Any:
    try:
        return convert(data)
    except _MisfitError as misfit:
        misfit.steps.append(f"[{step!r}]")
        raise


def _a_list(data: Any) -> Any:
    if not isinstance(data, list | tuple):
        raise _MisfitError(f"should be a list, found {_show(data)}")
    return data


def _without_none(members: tuple[Any, ...]) -> Any:
    return Union[tuple(member for member in members if member is not type(None))]  # noqa: UP007 (from values)


def _show(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, default=repr)
    return text if len(text) <= 40 else text[:37] + "..."


def _same(value: Any) -> Any:
    return value
