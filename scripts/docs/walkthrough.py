"""Print what one stage returns for `examples/walkthrough.py`; docs/architecture/ shows this output.

    python scripts/docs/walkthrough.py analysis

Fields that have their default value are left out, so that a page shows what the stage found.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # `examples` is a folder of the repository, not of the package

from aotlens.capture.storage import Write  # noqa: E402
from aotlens.capture.views import ViewStep  # noqa: E402
from aotlens.compiled import Compiled  # noqa: E402
from aotlens.ir.origin import Origin  # noqa: E402
from aotlens.ir.program import Node, Program, op_name  # noqa: E402
from aotlens.model.source import Span  # noqa: E402
from aotlens.options import CompileOptions  # noqa: E402
from aotlens.partition.rules import Reason  # noqa: E402
from aotlens.pipeline import STAGES, compile_direct  # noqa: E402
from examples.walkthrough import scale_first_row  # noqa: E402

INDENT = "    "


def short(value: Any) -> str | None:
    """The value in one word or call; None for a record whose fields are listed."""
    match value:
        case Node():
            return f"node {value.name}"
        case Program():
            inputs, outputs = (
                (item.node.name for item in value.inputs),
                (item.value for item in value.outputs),
            )
            return f"{value.name}({', '.join(inputs)}) -> {', '.join(str(short(out)) for out in outputs)}"
        case ViewStep():
            return f"{op_name(value.op)}{value.args}"
        case Span():
            return f"{Path(value.file).name}:{value.line}:{value.col + 1}"
        case Origin():
            span = value.location.innermost
            return short(span) if span is not None else value.reason
        case Reason():
            return f"{value.value}: {value.text}"
        case Enum():
            return str(value)
        case torch.Tensor():
            return f"{type(value).__name__} {tuple(value.shape)}"
        case None | bool() | int() | float() | str():
            return repr(value)
    return None if is_dataclass(value) or isinstance(value, tuple | list | dict) else type(value).__name__


def is_default(field: Field[Any], value: Any) -> bool:
    """Return True for the field's default, and for an empty value of a field that has none."""
    if field.default is not MISSING:
        return value is field.default or (type(value) is type(field.default) and value == field.default)
    return value is None or (isinstance(value, tuple | list | dict) and not value)


def describe(value: Any, name: str, depth: int = 0) -> Iterator[str]:
    """Lines for a value, records and sequences indented below their name."""
    prefix, text = f"{INDENT * depth}{name}", short(value)
    if text is not None:
        yield f"{prefix} = {text}"
    elif is_dataclass(value):
        yield f"{prefix}: {type(value).__name__}"
        for field in fields(value):
            member = getattr(value, field.name)
            if not is_default(field, member):
                yield from describe(member, field.name, depth + 1)
    elif all(short(item) is not None for item in value):
        yield f"{prefix} = ({', '.join(str(short(item)) for item in value)})"
    else:
        for index, item in enumerate(value):
            yield from describe(item, f"{name}[{index}]", depth)


def of_fields(record: Any, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from describe(getattr(record, name), name)


def program_slots(compiled: Compiled) -> Iterator[str]:
    for title in ("inputs", "outputs"):
        yield f"{title}:"
        for item in getattr(compiled.joint.program, title):
            node = item.node if title == "inputs" else item.value
            yield f"{INDENT}{getattr(node, 'name', node)}: {type(item.slot).__name__} `{item.slot.name}`"


def wrapper_steps(compiled: Compiled) -> Iterator[str]:
    for step in compiled.module.text.steps:
        if step.applied and step.lines is not None:
            yield f"lines {step.lines[0]}-{step.lines[1]}  {step.name}: {step.reason}"


def storage_of_x(compiled: Compiled) -> Iterator[str]:
    storage = compiled.captured.inputs[0].storage
    assert storage is not None
    yield f"base = {short(storage.base)}"
    for write in storage.writes:
        assert isinstance(write, Write)
        yield from describe(write, "write")


PRINTERS: dict[str, Callable[[Compiled], Iterator[str]]] = {
    "capture": storage_of_x,
    "analysis": lambda compiled: of_fields(compiled.meta, ("inputs", "outputs")),
    "joint": program_slots,
    "partition": lambda compiled: of_fields(compiled.parts, ("saved", "recomputed")),
    "codegen": lambda compiled: of_fields(compiled.code, ("forward", "backward")),
    "runtime": wrapper_steps,
}


def walkthrough() -> Compiled:
    """The example, compiled with the graphs' own text as code."""
    compile_example = partial(compile_direct, scale_first_row, kwargs={})
    arguments = torch.ones(2, 3), torch.ones(3, requires_grad=True)
    return compile_example(args=arguments, options=CompileOptions(backend="eager"))


def main() -> None:
    stage = next(iter(sys.argv[1:]), "")
    if stage not in PRINTERS:
        sys.exit(f"usage: python scripts/docs/walkthrough.py {'|'.join(STAGES)}")
    print(*PRINTERS[stage](walkthrough()), sep="\n")


if __name__ == "__main__":
    main()
