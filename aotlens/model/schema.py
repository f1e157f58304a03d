"""The JSON Schema (draft 2020-12) of a report, or of any other record, generated from the records.

Invariant: the records are the only definition. `python -m aotlens.model.schema docs/report.schema.json`
writes the published copy, and a test checks that it is current.
"""

import ast
import inspect
import json
import re
import sys
import types
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from aotlens.model.codec import json_key
from aotlens.model.report import SCHEMA, Report

Schema = dict[str, Any]

_SCALARS: dict[object, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def schema() -> Schema:
    """Every key is always written, so all are required; later minors may add more."""
    defined: dict[str, Schema] = {}
    _reference(Report, defined)
    top = defined.pop("Report")
    top["properties"]["schema"] = {
        "type": "string",
        "pattern": f"^{re.escape(SCHEMA)}(\\.[0-9]+)?$",
        "description": "The name and version of this schema.",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        **top,
        "$defs": dict(sorted(defined.items())),
    }


def answer_schema(record: Any) -> Schema:
    """Return the schema of the output of `encode_record` for a record: it has every key."""
    defined: dict[str, Schema] = {}
    _reference(record, defined)
    top = defined.pop(record.__name__)
    return {**top, "$defs": dict(sorted(defined.items()))} if defined else top


def arguments_schema(record: Any) -> Schema:
    """Return the schema of the input of `decode_record`: a field with a default may be missing."""
    top = answer_schema(record)
    for entry in fields(record):
        if entry.default is not MISSING:
            top["properties"][json_key(entry.name)]["default"] = _plain(entry.default)
    required = [json_key(entry.name) for entry in fields(record) if not _has_default(entry)]
    return {**top, "required": required, "additionalProperties": False}


def _has_default(entry: Field[Any]) -> bool:
    return entry.default is not MISSING or entry.default_factory is not MISSING


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def schema_text() -> str:
    """Return the schema as the text of its published file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _reference(record: Any, defined: dict[str, Schema]) -> Schema:
    """Return a reference to the record's definition, which is made on first use."""
    if record.__name__ not in defined:
        defined[record.__name__] = {}  # entered before its fields, in case a record contains itself
        defined[record.__name__] = _definition(record, defined)
    return {"$ref": f"#/$defs/{record.__name__}"}


def _definition(record: Any, defined: dict[str, Schema]) -> Schema:
    hints, descriptions = get_type_hints(record), _field_descriptions(record.__module__)[record.__name__]
    properties = {}
    for entry in fields(record):
        key = json_key(entry.name)
        properties[key] = _type(hints[entry.name], defined)
        if entry.name in descriptions:
            properties[key]["description"] = descriptions[entry.name]
    return {
        "type": "object",
        "description": _first_line(record),
        "properties": properties,
        "required": list(properties),
    }


def _first_line(record: Any) -> str:
    """Return the record's own docstring; dataclasses without one have a generated signature instead."""
    text = inspect.cleandoc(record.__doc__ or "")
    return "" if text.startswith(f"{record.__name__}(") else text


def _type(hint: Any, defined: dict[str, Schema]) -> Schema:
    if is_dataclass(hint):
        return _reference(hint, defined)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (types.UnionType, Union):
        return _union(arguments, defined)
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _type(arguments[0], defined)}
    if origin is tuple:
        items = [_type(item, defined) for item in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(arguments[1], defined)}
    return {"type": _SCALARS[hint]}


def _union(members: tuple[Any, ...], defined: dict[str, Schema]) -> Schema:
    """Scalars share one list of types; anything else is a choice."""
    if all(member in _SCALARS or member is type(None) for member in members):
        return {"type": [_SCALARS.get(member, "null") for member in members]}
    return {
        "anyOf": [{"type": "null"} if member is type(None) else _type(member, defined) for member in members]
    }


@cache
def _field_descriptions(module: str) -> dict[str, dict[str, str]]:
    """Return the string under each field, by record: Python drops them, so they are read from the source."""
    described: dict[str, dict[str, str]] = {}
    for record in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(record, ast.ClassDef):
            continue
        texts = described.setdefault(record.name, {})
        for entry, after in zip(record.body, record.body[1:], strict=False):
            match entry, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = inspect.cleandoc(text)
    return described


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_text(), encoding="utf-8")
