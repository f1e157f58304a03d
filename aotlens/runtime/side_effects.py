"""Module text of side effects: the names and items that each call binds.

Invariant: all containers among the arguments are looked up before any changes.
"""

from typing import Any

from aotlens.capture.free_variables.namespaces import bind_statement
from aotlens.capture.free_variables.side_effects import KEYS
from aotlens.capture.free_variables.state import Rebinding
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
    pairs = list(zip(captured.structure.rebindings, leaves, strict=False))
    items = [(rebinding, leaf) for rebinding, leaf in pairs if rebinding.store is None]
    if items:
        boxes = {item.expression: f"box_{index}" for index, (item, _) in enumerate(items)}
        with builder.step("update containers of the caller", "the function changes their items"):
            builder.add(*(f"{box} = {expression}" for expression, box in boxes.items()))
            builder.add(*(_statement(boxes[item.expression], item, leaf, names) for item, leaf in items))
    outer = [(rebinding, leaf) for rebinding, leaf in pairs if rebinding.store is not None]
    if outer:
        changed = dict.fromkeys(rebinding.description for rebinding, _ in outer)
        spans = dict.fromkeys(rebinding.span for rebinding, _ in outer if rebinding.span is not None)
        sites = tuple(site_at(span) for span in spans)
        with builder.step("replay side effects", f"the function changes {', '.join(changed)}", 0, sites):
            for rebinding, leaf in outer:
                box = names.object(rebinding.store, rebinding.expression)
                builder.add(_statement(box, rebinding, leaf, names))


def _statement(box: str, rebinding: Rebinding, value: str, names: Names) -> str:
    return bind_statement(box, rebinding.store, _key(rebinding.key, names), value)


def _key(key: Any, names: Names) -> str:
    if type(key) is tuple:
        return f"({', '.join(_key(item, names) for item in key)}{',' if len(key) == 1 else ''})"
    return repr(key) if type(key) in KEYS else names.object(key, "key")
