"""Module text of side effects: the names and items that each call binds.

Invariant: all containers among the arguments are looked up before any changes.
"""

from typing import Any

from aotlens.capture.free_variables.side_effects import KEYS
from aotlens.capture.free_variables.stores import bind_statement
from aotlens.capture.records import Captured
from aotlens.ir.render import Names
from aotlens.model.spans import site_at
from aotlens.runtime.module_text import TextBuilder
from aotlens.unsupported import unsupported


def check_exportable(captured: Captured, stands_alone: bool) -> None:
    """Check that an exported text needs no object of the exporting process.

    Raises:
        UnsupportedError: the function leaves a value in one.
    """
    for rebinding in captured.structure.rebindings if stands_alone else ():
        if rebinding.store is not None:
            name, binding = captured.subject.name, rebinding.description
            raise unsupported("export-of-side-effect", rebinding.span, target=name, binding=binding)


def write_side_effects(builder: TextBuilder, captured: Captured, names: Names, leaves: list[str]) -> None:
    """Write statements that bind names, and items of the caller's containers."""
    rebindings = captured.structure.rebindings
    changed = dict.fromkeys(rebinding.description for rebinding in rebindings)
    spans = dict.fromkeys(rebinding.span for rebinding in rebindings if rebinding.span is not None)
    sites = tuple(site_at(span) for span in spans)
    arguments = dict.fromkeys(rebinding.expression for rebinding in rebindings if rebinding.store is None)
    boxes = {expression: f"box_{index}" for index, expression in enumerate(arguments)}
    with builder.step("replay side effects", f"the function changes {', '.join(changed)}", 0, sites):
        builder.add(*(f"{box} = {expression}" for expression, box in boxes.items()))
        for rebinding, leaf in zip(rebindings, leaves, strict=False):
            store, expression = rebinding.store, rebinding.expression
            box = boxes[expression] if store is None else names.object(store, expression)
            builder.add(bind_statement(box, store, _key(rebinding.key, names), leaf))


def _key(key: Any, names: Names) -> str:
    if type(key) is tuple:
        return f"({', '.join(_key(item, names) for item in key)}{',' if len(key) == 1 else ''})"
    return repr(key) if type(key) in KEYS else names.object(key, "key")
