"""Module text for outputs that are views: of custom functions, multi-output operators, intermediate bases."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from aotlens.analysis.records import (
    AliasBase,
    BaseInfo,
    ConstantBase,
    InputBase,
    IntermediateBaseOf,
    OutputAliasInfo,
    OutputBase,
)
from aotlens.capture.recorded import StorageState
from aotlens.capture.records import Captured
from aotlens.capture.views import ViewStep
from aotlens.ir.program import ProgramOutput
from aotlens.ir.render import Names
from aotlens.ir.slots import DIFFERENTIABLE_OUTPUTS, IntermediateBase, UserOutput
from aotlens.partition.records import Partitioned
from aotlens.runtime.graph_text import chain_text, geometry_text, view_text
from aotlens.runtime.inference_tensors import LineModes, modes_of_views
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.mutations import at_other_version
from aotlens.runtime.subclasses import output_name
from aotlens.torch_api.autograd import is_view_of_custom_function


def write_function_views(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """Write the views at the end of the function's `forward`, outside `below_views`: autograd sees them."""
    if not any(
        info.custom_function_input is not None or info.is_custom_function_view
        for info in parts.joint.meta.outputs
    ):
        return
    with builder.step(
        "regenerate views of custom functions",
        ("autograd must treat them as views made by a custom function"),
    ):
        _views_of_inputs(builder, parts, names)
        _views_of_results(builder, parts)


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
        builder.add(f"{out} = {chain_text(text, info.chain, names)}")


def _views_of_results(builder: TextBuilder, parts: Partitioned) -> None:
    """Write views that a custom function made of an intermediate.

    Their base is another output on the intermediate's storage, or else the first of them (`shared`).
    """
    meta, recorded = parts.joint.meta, parts.joint.recorded
    outputs = parts.forward.outputs_of(*DIFFERENTIABLE_OUTPUTS)
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


Line = Callable[[LineModes, str], None]
"""Writes a line that runs under modes."""


class MultiOutputViews:
    """Shares one call of a multi-output operator (`unbind`) among outputs, as in eager.

    Two outputs of the same result are two tensor objects, so the second one gets another call.
    """

    def __init__(self, write: Line) -> None:
        self._write = write
        self._latest: dict[tuple[LineModes, str], tuple[str, set[int | None]]] = {}
        """By modes and expression of a call: the name in `call` of the last one, and its results in use."""
        self._call_count = 0

    def view(self, info: OutputAliasInfo, step: ViewStep, text: str, modes: LineModes) -> str:
        """Return an output's view as an expression; `text` is the same with its own call of the operator."""
        call = text.removesuffix(f"[{step.result}]")
        if (
            step.result is None
            or info.raises_on_use
            or info.viewed_before_change
            or f"out_{info.index}" in call
        ):
            return text
        name, used = self._latest.get((modes, call), ("", {step.result}))
        if step.result in used:
            name, used = f"views_{self._call_count}", set()
            self._call_count += 1
            self._latest[modes, call] = name, used
            self._write(modes, f"{name} = {call}")
        used.add(step.result)
        return f"{name}[{step.result}]"


SET_META = "torch._C._autograd._set_creation_meta"
IN_CUSTOM_FUNCTION = "torch._C._autograd.CreationMeta.IN_CUSTOM_FUNCTION"
"""By which autograd refuses a write with a gradient beside such a view."""


class OutputAliases:
    """Writes the lines of `call` that regenerate aliases from their bases."""

    def __init__(self, builder: TextBuilder, captured: Captured, names: Names, arguments: list[str]) -> None:
        self._builder = builder
        self._captured = captured
        self._names = names
        self._arguments = arguments
        self._multi_output_views = MultiOutputViews(self._under)

    def write_bases(self, bases: tuple[BaseInfo, ...]) -> None:
        """Write the intermediate bases that are detached."""
        for index, base in enumerate(bases):
            if base.is_cut_off:
                self._builder.add(f"base_{index} = base_{index}.detach().requires_grad_()")

    def write(self, info: OutputAliasInfo) -> None:
        """Write the line that regenerates an output, each view in the modes under which the user made it.

        An output that is the same tensor object as an earlier one only gets a second name.
        """
        name = f"out_{info.index}"
        if info.same_object_as is not None:
            self._builder.add(f"{name} = out_{info.same_object_as}")
            return
        base = self.base_name(info.base)
        with at_other_version(self._builder, base) if info.raises_on_use else nullcontext():
            self._write_views(base, info)
        is_view = info.detached_after != len(info.chain) + (info.geometry is not None)
        if is_view and not info.requires_grad and is_view_of_custom_function(info.tensor):
            self._builder.add(f"{SET_META}(out_{info.index}, {IN_CUSTOM_FUNCTION})")

    def _write_views(self, text: str, info: OutputAliasInfo) -> None:
        name, (modes, steps) = f"out_{info.index}", modes_of_views(self._captured, info)
        detach_text = ".data" if info.has_own_version else ".detach()"
        text += detach_text if info.detached_after == 0 else ""
        if info.geometry is not None:
            text = f"{text}.as_strided({geometry_text(info.geometry, self._names)})"
            text += detach_text if info.detached_after == 1 else ""
        for position, (step, wanted) in enumerate(zip(info.chain, steps, strict=True), 1):
            if wanted != modes and position > 1:
                self._under(modes, f"{name} = {text}")
                text = name
            modes, text = wanted, view_text(step, text, self._names)
            text = self._multi_output_views.view(info, step, text, modes)
            text += detach_text if info.detached_after == position else ""
        self._under(modes, f"{name} = {text}")

    def _under(self, modes: LineModes, line: str) -> None:
        with modes.block(self._builder, self._captured):
            self._builder.add(line)

    def base_name(self, base: AliasBase | None) -> str:
        """Return the text's name of a base."""
        match base:
            case InputBase(index=index):
                return self._arguments[index]
            case IntermediateBaseOf(index=index):
                return f"base_{index}"
            case OutputBase(index=index):
                return f"out_{index}"
            case ConstantBase(node=node):
                return self._names.node(node)
            case None:
                raise AssertionError("an alias has a base")
