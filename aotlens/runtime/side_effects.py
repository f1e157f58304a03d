"""Module text of side effects: values in containers, attributes, globals and closures.

Invariant: all targets are looked up before any changes; a value that the function may have read is checked
before the graphs run.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from aotlens.capture.free_variables.containers import KEYS, MISSING_ITEM, ContainerUpdate, Item
from aotlens.capture.free_variables.guards import same_items
from aotlens.capture.free_variables.namespaces import (
    bind_statement,
    bound_condition,
    read_expression,
    read_if_bound_expression,
    unbind_statement,
)
from aotlens.capture.records import Captured
from aotlens.ir.render import Names
from aotlens.model.report import Site
from aotlens.model.spans import site_at
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.pytrees import custom_spec, needs_spec, structure_text
from aotlens.runtime.tensor_guards import not_plain, shape_differs, strides_differ
from aotlens.unsupported import unsupported


def check_exportable(captured: Captured, stands_alone: bool) -> None:
    """Check that an exported text needs no object of the exporting process.

    Raises:
        UnsupportedError: the function leaves a value in one.
    """
    for refill in captured.structure.container_updates if stands_alone else ():
        if refill.store is not None:
            raise unsupported(
                "export-of-side-effect", refill.span, target=captured.subject.name, binding=refill.description
            )


def check_free_variables(builder: TextBuilder, captured: Captured, names: Names) -> None:
    """Reject a call if a free variable that only the first calls change differs from its built-in value."""
    checked = [refill for refill in captured.structure.container_updates if refill.required_items is not None]
    if not checked:
        return
    inputs = {
        id(captured_input.free_tensor): captured_input
        for captured_input in captured.inputs
        if captured_input.carried_binding is not None
    }
    with builder.step("check values that the function changes", "the function may read what it changes"):
        for refill in checked:
            message = (
                f"compiled `{captured.subject.name}` was compiled for the former value of"
                f" {refill.description}, which has changed"
            )
            if refill.required_items:
                with builder.block(f"if {_binding_differs(refill, names)}:"):
                    builder.add(f"raise ValueError({message!r})")
            for key, tensor in refill.carried:
                captured_input = inputs.get(id(tensor))
                name = "found" if captured_input is None else names.node(captured_input.node)  # type: ignore[arg-type]
                read = read_expression if refill.required_items else read_if_bound_expression
                builder.add(
                    f"{name} = {read(names.object(refill.store, refill.expression), refill.store, repr(key))}"
                )
                with builder.block(f"if {_tensor_differs(name, tensor)}:"):
                    builder.add(f"raise ValueError({message!r})")


def _binding_differs(refill: ContainerUpdate, names: Names) -> str:
    box, assumed = names.object(refill.store, refill.expression), refill.required_items or ()
    if not refill.binds_names:
        content: Any = dict(assumed) if refill.keyed else [value for _, value in assumed]
        if not content:
            return f"len({box})"
        same = names.object(same_items, "same_items")
        return f"not {same}({box}, {names.object(content, f'{refill.expression}_before')})"
    key, value = assumed[0]
    if value is not MISSING_ITEM:
        return f"{read_expression(box, refill.store, repr(key))} is not {value!r}"
    return bound_condition(box, refill.store, repr(key))


def _tensor_differs(name: str, tensor: torch.Tensor) -> str:
    """Return the condition that a tensor is of another kind."""
    is_tensor = f"type({name}) is not torch.Tensor and {not_plain(name)}"
    same = f"{name}.requires_grad is {tensor.requires_grad} and {name}.is_leaf is {tensor.is_leaf}"
    parts = [is_tensor, shape_differs(name, tensor), f"{name}.dtype is not {tensor.dtype}"]
    return " or ".join([*parts, strides_differ(name, tensor), f"not ({same})"])


def write_side_effects(builder: TextBuilder, captured: Captured, names: Names, leaves: list[str]) -> None:
    """Write statements that put new items into the caller's containers, and rebind names."""
    refills, remaining = captured.structure.container_updates, iter(leaves)
    of_arguments = [refill for refill in refills if refill.store is None]
    boxes = {id(refill): f"box_{index}" for index, refill in enumerate(of_arguments)}
    boxes |= {
        id(refill): names.object(refill.store, refill.expression)
        for refill in refills
        if refill.store is not None
    }
    if of_arguments:
        with builder.step("update containers of the caller", "the function changes their items"):
            builder.add(*(f"{boxes[id(refill)]} = {refill.expression}" for refill in of_arguments))
            for refill in of_arguments:
                builder.add(*_update_lines(boxes[id(refill)], refill, remaining, names))
    of_free_variables = refills[len(of_arguments) :]
    if of_free_variables:
        reason = (
            "the function changes "
            f"{', '.join(dict.fromkeys(refill.description for refill in of_free_variables))}"
        )
        with builder.step("replay side effects", reason, 0, _sites(of_free_variables)):
            for refill in of_free_variables:
                builder.add(*_update_lines(boxes[id(refill)], refill, remaining, names))


def _sites(refills: Sequence[ContainerUpdate]) -> tuple[Site, ...]:
    spans = (refill.span for refill in refills if refill.span is not None)
    return tuple(dict.fromkeys(site_at(span) for span in spans))


def _update_lines(box: str, refill: ContainerUpdate, leaves: Iterator[str], names: Names) -> Iterator[str]:
    texts = [_item(box, item, leaves, names) for item in refill.items]
    listed = f"[{', '.join(texts)}]"
    if refill.keyed:
        if refill.cleared:
            yield f"{box}.clear()"
        for key in refill.removed:
            written = _key(key, names)
            yield (
                f"del {box}[{written}]"
                if refill.store is None
                else unbind_statement(box, refill.store, written)
            )
        for item, text in zip(refill.items, texts, strict=True):
            yield bind_statement(box, refill.store, _key(item.key, names), text)
    elif refill.appends:
        new = [text for text, item in zip(texts, refill.items, strict=True) if item.old_index is None]
        yield f"{box}.append({new[0]})" if len(new) == 1 else f"{box}.extend([{', '.join(new)}])"
    elif isinstance(refill.store, list) or refill.store is None:
        yield f"{box}[:] = {listed}"
    else:
        yield f"items = {listed}"
        yield f"{box}.clear()"
        yield f"{box}.extend(items)"


def _key(key: Any, names: Names) -> str:
    if type(key) is tuple:
        return f"({', '.join(_key(item, names) for item in key)}{',' if len(key) == 1 else ''})"
    return repr(key) if type(key) in KEYS else names.object(key, "key")


def _item(box: str, item: Item, leaves: Iterator[str], names: Names) -> str:
    if item.old_index is not None:
        return f"{box}[{item.old_index}]"
    count = item.spec.num_leaves
    texts = [next(leaves) for _ in range(count)]
    spec = names.object(custom_spec(item.spec), "item_spec") if needs_spec(item.spec) else ""
    return structure_text(item.spec, iter(texts), spec)
