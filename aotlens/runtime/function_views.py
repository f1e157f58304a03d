"""Views that a custom `autograd.Function` of the user's made, given out by ours.

Invariant: autograd knows each as a view that a custom function made, so it refuses writes to it as in eager.
"""

from typing import Any

from aotlens.capture.storage import Storage
from aotlens.ir.program import ProgramOutput
from aotlens.ir.render import Names
from aotlens.ir.slots import IntermediateBase, UserOutput
from aotlens.partition.records import Partitioned
from aotlens.runtime.builder import TextBuilder
from aotlens.runtime.graphs import view_text
from aotlens.runtime.subclasses import output_name


def write_function_views(
    builder: TextBuilder, parts: Partitioned, outputs: list[ProgramOutput], names: Names
) -> None:
    """The lines at the end of our function's forward, outside `below_views`, so that autograd sees views."""
    if not any(info.function_view_of is not None or info.function_view for info in parts.joint.meta.outputs):
        return
    with builder.step("make custom views again", "autograd must know them as views that a function made"):
        _views_of_inputs(builder, parts, names)
        _views_of_results(builder, parts, outputs)


def _views_of_inputs(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """Views that a custom function made: outside `below_views`, so that autograd refuses writes to them."""
    for info in parts.joint.meta.outputs:
        if info.function_view_of is None:
            continue
        node: Any = parts.joint.captured.inputs[info.function_view_of].node
        text, out = names.node(node), f"out_{info.index}"
        if info.tensor.dtype == node.val.dtype and not info.tensor.is_complex():
            builder.add(f"{out} = {text}.as_strided({out}.size(), {out}.stride(), {out}.storage_offset())")
            continue
        for step in info.chain:
            text = view_text(step, text, names)
        builder.add(f"{out} = {text}")


def _views_of_results(builder: TextBuilder, parts: Partitioned, outputs: list[ProgramOutput]) -> None:
    """The same of an intermediate: views of another result in its memory, or of what the graph gave."""
    meta, recorder = parts.joint.meta, parts.joint.captured.recorder
    by_storage: dict[int, list[int]] = {}
    for info in meta.outputs:
        if info.function_view:
            by_storage.setdefault(id(recorder.tracked(info.tensor).storage), []).append(info.index)
    for views in by_storage.values():
        storage = recorder.tracked(meta.outputs[views[0]].tensor).storage
        given = [out for out in outputs if _lies_on(parts, out, storage)]
        base = output_name(given[0]) if given else "shared"
        if not given:
            builder.add(f"shared = out_{views[0]}")
        for at in views:
            out = f"out_{at}"
            builder.add(f"{out} = {base}.as_strided({out}.size(), {out}.stride(), {out}.storage_offset())")


def _lies_on(parts: Partitioned, out: ProgramOutput, storage: Storage) -> bool:
    """Whether it is a result in that memory, other than by such a view."""
    meta, tensor = parts.joint.meta, None
    match out.slot:
        case UserOutput(index=index) if not meta.outputs[index].function_view:
            tensor = meta.outputs[index].tensor
        case IntermediateBase(index=index):
            tensor = meta.bases[index].tensor
    return tensor is not None and parts.joint.captured.recorder.tracked(tensor).storage is storage
