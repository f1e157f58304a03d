"""Module text for outputs that are views: of custom functions, multi-output operators, intermediate bases."""

from collections.abc import Callable
from typing import Any

from aotlens.analysis.records import BaseInfo, DetachedStorage, OutputAliasInfo
from aotlens.capture.recorded import StorageState
from aotlens.capture.views import ViewStep
from aotlens.ir.program import ProgramOutput
from aotlens.ir.render import Names
from aotlens.ir.slots import IntermediateBase, UserOutput
from aotlens.partition.records import Partitioned
from aotlens.runtime.graph_text import view_text
from aotlens.runtime.inference_tensors import Modes
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.subclasses import output_name


def write_function_views(
    builder: TextBuilder, parts: Partitioned, outputs: list[ProgramOutput], names: Names
) -> None:
    """Write the views at the end of the function's `forward`, outside `below_views`: autograd sees them."""
    if not any(
        info.custom_function_input is not None or info.is_custom_function_view
        for info in parts.joint.meta.outputs
    ):
        return
    with builder.step("make custom views again", "autograd must know them as views that a function made"):
        _views_of_inputs(builder, parts, names)
        _views_of_results(builder, parts, outputs)


def _views_of_inputs(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """Write views of inputs that a custom function made, so that autograd rejects writes to them."""
    for info in parts.joint.meta.outputs:
        if info.custom_function_input is None:
            continue
        node: Any = parts.joint.captured.inputs[info.custom_function_input].node
        text, out = names.node(node), f"out_{info.index}"
        if info.tensor.dtype == node.val.dtype and not info.tensor.is_complex():
            builder.add(f"{out} = {text}.as_strided({out}.size(), {out}.stride(), {out}.storage_offset())")
            continue
        for step in info.chain:
            text = view_text(step, text, names)
        builder.add(f"{out} = {text}")


def _views_of_results(builder: TextBuilder, parts: Partitioned, outputs: list[ProgramOutput]) -> None:
    """Write such views of an intermediate: of another output on its storage, or of the graph's value."""
    meta, recorded = parts.joint.meta, parts.joint.recorded
    by_storage: dict[int, list[int]] = {}
    for info in meta.outputs:
        if info.is_custom_function_view:
            by_storage.setdefault(id(recorded.tracked(info.tensor).storage), []).append(info.index)
    for views in by_storage.values():
        storage = recorded.tracked(meta.outputs[views[0]].tensor).storage
        base_outputs = [out for out in outputs if _shares_storage(parts, out, storage)]
        base = output_name(base_outputs[0]) if base_outputs else "shared"
        if not base_outputs:
            builder.add(f"shared = out_{views[0]}")
        for index in views:
            out = f"out_{index}"
            builder.add(f"{out} = {base}.as_strided({out}.size(), {out}.stride(), {out}.storage_offset())")


def _shares_storage(parts: Partitioned, out: ProgramOutput, storage: StorageState) -> bool:
    """Return True if it is an output on that storage, other than such a view."""
    meta, tensor = parts.joint.meta, None
    match out.slot:
        case UserOutput(index=index) if not meta.outputs[index].is_custom_function_view:
            tensor = meta.outputs[index].tensor
        case IntermediateBase(index=index):
            tensor = meta.bases[index].tensor
    return tensor is not None and parts.joint.recorded.tracked(tensor).storage is storage


Line = Callable[[Modes, str], None]
"""Writes a line that runs under modes."""


class MultiOutputViews:
    """The names in `call` of what multi-output operators returned, by modes and expression."""

    def __init__(self, write: Line) -> None:
        self._write = write
        self._free: dict[tuple[Modes, str], tuple[str, set[int | None]]] = {}
        self._names = 0

    def view(self, info: OutputAliasInfo, step: ViewStep, text: str, modes: Modes) -> str:
        """Return an output's view as an expression; `text` is the same with its own call of the operator."""
        call = text.removesuffix(f"[{step.result}]")
        if (
            step.result is None
            or info.raises_on_use
            or info.viewed_before_change
            or f"out_{info.index}" in call
        ):
            return text
        name, used = self._free.get((modes, call), ("", {step.result}))
        if step.result in used:
            name, used = f"views_{self._names}", set()
            self._names += 1
            self._free[modes, call] = name, used
            self._write(modes, f"{name} = {call}")
        used.add(step.result)
        return f"{name}[{step.result}]"


def write_output_bases(
    builder: TextBuilder, bases: tuple[BaseInfo, ...], detached_view: Callable[[DetachedStorage], str]
) -> None:
    """Write the bases; `detached_view` returns the text of a detached view of a storage."""
    for index, base in enumerate(bases):
        if base.is_cut_off:
            builder.add(f"base_{index} = base_{index}.detach().requires_grad_()")
        if base.detached_storage is None:
            continue
        if base.detached_storage.was_assigned:
            builder.add(f"base_{index}.data = {detached_view(base.detached_storage)}")
            continue
        builder.add(f"memory = {detached_view(base.detached_storage)}")
        preserving = "torch.autograd._unsafe_preserve_version_counter(memory)"
        with builder.block(f"with torch.enable_grad(), {preserving}:"):
            builder.add(f"base_{index} = memory.copy_(base_{index})")
