"""Lines of `call` that change the caller's tensors: what autograd must see before the graphs, then the rest.

Invariant: autograd sees each change of an input as in eager; the steps run in the order of the report.
"""

from collections.abc import Iterable
from typing import Any

from aotlens.analysis.records import InputAliasInfo, MutationType, OutputAliasInfo
from aotlens.capture.events import EventKind
from aotlens.capture.records import AutogradChange
from aotlens.capture.storage import index_without_repeats, span_of_writes
from aotlens.ir.origin import sites_of
from aotlens.ir.render import literal
from aotlens.ir.tensor_text import size_bytes
from aotlens.model.report import Site
from aotlens.runtime.autograd.leaves import reshaped_leaves
from aotlens.runtime.call_text import CallText
from aotlens.runtime.graph_text import chain_text, geometry_text, records_nothing
from aotlens.runtime.inference_tensors import LineModes
from aotlens.runtime.mutations import at_other_version, preserving_version
from aotlens.runtime.output_views import OutputAliases
from aotlens.unsupported import unsupported

METADATA_REASON = "sizes or strides of an input change, for which autograd raises the version counter"
VIEW_REASON = "a view of an input changes its sizes or strides, for which autograd raises the version counter"
OVERLAP_REASON = "overlapping inputs are written through their base, which may not raise the counter of each"


class InputChanges:
    """Writes the steps that change the inputs of one target."""

    def __init__(self, call: CallText, aliases: OutputAliases) -> None:
        self._call = call
        self._builder = call.builder
        self._captured = call.captured
        self._infos = call.meta.inputs
        self._aliases = aliases
        self._reshaped = reshaped_leaves(call.parts)

    def write_before_graphs(self) -> None:
        """Write what autograd must see of the inputs before the graphs run."""
        self._bump_versions_before_graphs()
        on = (AutogradChange.REQUIRES_GRAD, AutogradChange.NEW_LEAF)
        if infos := [info for info in self._infos if info.autograd in on]:
            with self._builder.step("make inputs require grad", "the function enables it for an input"):
                for info in infos:
                    off = ".detach_()" if info.autograd is AutogradChange.NEW_LEAF else ""
                    self._builder.add(f"{self._name(info)}{off}.requires_grad_()")
        if self._reshaped:  # autograd checks gradients against the sizes that it has seen
            with self._builder.step("set sizes of leaves", "their gradients have these sizes"):
                for info in self._reshaped:
                    self._set_leaf_size(info)

    def write_after_graphs(self) -> None:
        """Write what happens to the caller's tensors once the graphs have run."""
        self._detach()
        self._copy_back()
        self._swap_storages()
        self._set_geometries()
        self._bump_versions()

    def _name(self, info: InputAliasInfo) -> str:
        return self._call.arguments[info.index]

    def _set_leaf_size(self, info: InputAliasInfo) -> None:
        name = self._name(info)
        self._builder.add(f"before_{name} = {name}.detach()")
        if info.is_resized:
            self._resize(info)
        elif info.new_geometry is not None:
            preserving = f", {preserving_version(name)}" if info.changes_metadata_only else ""
            geometry = geometry_text(info.new_geometry, self._call.names)
            line = f"{name}.as_strided_({geometry})"
            if self._is_reset_leaf(info):  # a new edge, as below
                line = f"{name}.set_({name}.detach().as_strided({geometry}))"
            with self._builder.block(f"with torch.no_grad(){preserving}:"):
                self._builder.add(line)
        elif self._is_reset_leaf(info):  # a view of the leaf keeps its former edge alive
            self._set(name, f"{name}.new_empty({self._size_at_exit(info)})")
        else:
            self._builder.add(f"{name}.data = {name}.new_empty({self._size_at_exit(info)})")

    def _size_at_exit(self, info: InputAliasInfo) -> str:
        return literal(self._captured.inputs[info.index].at_exit.geometry.size, self._call.names)

    def _resize(self, info: InputAliasInfo) -> None:
        """Resize an input below autograd, as the `out=` operator does.

        Autograd rejects a resize of a tensor that requires grad, and counts only the write.
        """
        with self._builder.block("with below_views():"):
            self._builder.add(f"{self._name(info)}.resize_({self._size_at_exit(info)})")

    def _set(self, name: str, new: str) -> None:
        """Write a `set_`, which gives other memory and a new edge; versions are bumped elsewhere."""
        with self._builder.block(f"with torch.no_grad(), {preserving_version(name)}:"):
            self._builder.add(f"{name}.set_({new})")

    def _is_reset_leaf(self, info: InputAliasInfo) -> bool:
        """Return True if `set_` gave a leaf a new autograd edge."""
        captured_input, events = self._captured.inputs[info.index], self._call.parts.joint.recorded.events
        return captured_input.is_leaf and events.has(EventKind.NEW_EDGE, captured_input.argument)

    def _gets_new_edge(self, info: InputAliasInfo) -> bool:
        """Return True for such a leaf if the call's gradients go to its former edge."""
        argument, events = self._captured.inputs[info.index].argument, self._call.parts.joint.recorded.events
        return self._is_reset_leaf(info) and not events.has(EventKind.GRADIENT_AT_NEW_EDGE, argument)

    def _detach(self) -> None:
        """Write `detach_()` or `requires_grad_(False)`, after views with their former grad_fn are taken."""
        detached = [info for info in self._infos if info.autograd is AutogradChange.DETACHED]
        if not detached:
            return
        with self._builder.step("detach inputs", "the function detaches an input in place"):
            self._write_views_before_change(with_former_grad_fn=True)
            for info in detached:
                name, leaf = self._name(info), self._captured.inputs[info.index].is_leaf
                self._builder.add(f"{name}.requires_grad_(False)" if leaf else f"{name}.detach_()")

    def _write_views_before_change(self, with_former_grad_fn: bool) -> None:
        """Write outputs that are views of an input before it is detached, or else before its storage
        changes."""
        for output in self._call.meta.outputs:
            if output.viewed_before_change and self._keeps_former_grad_fn(output) is with_former_grad_fn:
                self._aliases.write(output)

    def _keeps_former_grad_fn(self, output: OutputAliasInfo) -> bool:
        base: Any = output.base
        info = self._infos[base.index]
        detached = info.autograd is AutogradChange.DETACHED
        return detached and (output.requires_grad or info.storage_swap is None)

    def _copy_back(self) -> None:
        """Write the copies of the new values of mutated inputs to the caller's tensors."""
        changed = list(self._call.meta.out_of_graph)
        reasons = dict.fromkeys(info.reason for info in changed)
        copied = sum(size_bytes(self._captured.inputs[info.index].fake) or 0 for info in changed)
        reason = "; ".join(reasons) or "no input is mutated outside the graph"
        with self._builder.step("copy back mutated inputs", reason, copied, _sites(changed)):
            for info in changed:
                if info.storage_swap is None or not info.seen_by_autograd:
                    self._copy(info)

    def _copy(self, info: InputAliasInfo) -> None:
        """Write the copy of an input's new data, as autograd must see it."""
        name = self._name(info)
        if info.is_resized and info not in self._reshaped:
            self._resize(info)
        elif info in self._reshaped and not info.is_resized:
            name = f"before_{name}"
        captured_input = self._captured.inputs[info.index]
        once = _without_repeats(captured_input.fake)
        line = f"{name}{once}.copy_(updated_{info.index}{once})"
        if info.seen_by_autograd:
            with LineModes(True, self._captured.inference_mode).block(self._builder, self._captured):
                self._builder.add(line)
        elif captured_input.argument.is_inference():  # eager allows what was recorded
            with self._builder.block("with torch.inference_mode():"):
                self._builder.add(line)
        elif info.hidden_from_autograd:
            with self._builder.block(f"with torch.no_grad(), {preserving_version(name)}:"):
                self._builder.add(line)
        elif not info.is_view and records_nothing(self._call.parts):
            self._builder.add(line)
        elif info.storage_swap is None and not info.mutates_metadata and captured_input.wrapped is None:
            # what `no_grad` does to a write, at half its cost: autograd sees the version alone
            with self._builder.block("with below_views():"):
                self._builder.add(line)
            self._builder.add(f"increment_version(({name},))")
        else:
            with self._builder.block("with torch.no_grad():"):
                self._builder.add(line)

    def _swap_storages(self) -> None:
        """Write the new storages of inputs; all are taken before any is assigned: two inputs may swap theirs.

        Leaves that keep their storage may get a new autograd edge by `set_`.
        """
        swapped = [info for info in self._infos if info.storage_swap is not None]
        unswapped = (info for info in self._infos if info.storage_swap is None)
        reset = [info for info in unswapped if self._gets_new_edge(info)]
        if not swapped and not reset:
            return
        reason = "an input ends on another storage"
        with self._builder.step("swap storages of inputs", reason, sites=_sites(swapped)):
            self._write_views_before_change(with_former_grad_fn=False)
            for info in swapped:
                storage_swap: Any = info.storage_swap
                base = self._aliases.base_name(storage_swap.base)
                text = chain_text(f"{base}.detach()", storage_swap.chain, self._call.names)
                self._builder.add(f"new_{info.index} = {text}")
            for info in swapped:
                self._assign_storage(info, f"new_{info.index}")
                if info.seen_by_autograd:
                    self._copy(info)
            for info in reset:
                self._assign_storage(info, self._name(info))

    def _assign_storage(self, info: InputAliasInfo, new: str) -> None:
        if self._gets_new_edge(info):
            self._set(self._name(info), new)
        else:
            self._builder.add(f"{self._name(info)}.data = {new}")

    def _set_geometries(self) -> None:
        """Write the new sizes, strides and storage offsets of inputs."""
        changed = [info for info in self._infos if info.new_geometry is not None]
        reason = "sizes or strides of an input change" if changed else "no input's sizes or strides change"
        with self._builder.step("set sizes and strides of inputs", reason, sites=_sites(changed)):
            self._check_saved_aliases(changed)
            for info in changed:
                if info not in self._reshaped:
                    self._set_geometry(info)

    def _set_geometry(self, info: InputAliasInfo) -> None:
        """Write a geometry change of an input, as autograd must see it."""
        name, captured_input = self._name(info), self._captured.inputs[info.index]
        geometry: Any = info.new_geometry
        line = f"{name}.as_strided_({geometry_text(geometry, self._call.names)})"
        contexts, is_inference = [], captured_input.argument.is_inference()
        changes_autograd = info.autograd is not AutogradChange.NONE and not info.seen_by_autograd
        without_grad = info.metadata_mutated_without_grad or self._gains_gradient_of_base(info)
        if changes_autograd or without_grad:
            contexts.append("torch.no_grad()")
        elif not self._captured.grad_enabled:
            contexts.append("torch.enable_grad()")
        # bumped before the graph ran, or never
        if not is_inference and (info.changes_metadata_only or not info.version_bumps):
            contexts.append(preserving_version(name))
        if is_inference:  # eager allows what was recorded
            contexts.append("torch.inference_mode()")
        if not contexts:
            self._builder.add(line)
            return
        with self._builder.block(f"with {', '.join(contexts)}:"):
            self._builder.add(line)
        is_new_view = info.changes_metadata_only and info.metadata_mutated_without_grad
        if is_new_view and not captured_input.is_leaf:
            with at_other_version(self._builder, name):
                self._builder.add(f"{name}.grad_fn  # of a view: autograd recreates it for these sizes")

    def _gains_gradient_of_base(self, info: InputAliasInfo) -> bool:
        """Return True if the input is a view that requires grad only since its base was written to.

        Autograd gives such a view its `grad_fn` when it is next asked for, for the sizes of that moment;
        until then it takes the view for a leaf, of which it rejects a change.
        """
        captured_input = self._captured.inputs[info.index]
        gains_gradient = captured_input.at_exit.requires_grad and not captured_input.requires_grad
        return info.base is not None and gains_gradient

    def _check_saved_aliases(self, infos: list[InputAliasInfo]) -> None:
        """Check inputs whose sizes or strides change, which bumps their versions after the graph.

        Raises:
            UnsupportedError: such an input is a view that is not written to, and the backward saves another
                input on its storage, or their base, whose version would then have changed.
        """
        inputs, flat = self._captured.inputs, len(self._captured.flat_inputs)
        saved = {id(captured_input.node) for captured_input in self._call.parts.saved_inputs}
        for info in infos:
            if not info.is_view or info.mutates_data:
                continue
            captured_input = inputs[info.index]
            base = () if captured_input.base is None else (captured_input.base,)
            for index in (*captured_input.shares_storage_with, *base):
                if id(inputs[index].node) in saved:
                    other = f"`{inputs[index].slot.name}`" if index < flat else "its base"
                    raise unsupported(
                        "geometry-change-of-shared-input",
                        span_of_writes(list(info.writes)),
                        input=captured_input.slot.name,
                        other=other,
                    )

    def _bump_versions_before_graphs(self) -> None:
        """Bump the versions of inputs of which only the sizes or strides change, or those of a view of them.

        It happens before the graphs run, so that what they save of such an input stays valid, as in eager.
        The versions of overlapping inputs are read here, and compared by `_bump_versions` after the graphs.
        """
        reshaped = [info for info in self._infos if info.version_bumps and info.changes_metadata_only]
        viewed = [info for info in self._infos if info.version_bumps and not info.is_mutated]
        overlapping = self._overlapping_written_back()
        reasons = {METADATA_REASON: reshaped, VIEW_REASON: viewed, OVERLAP_REASON: overlapping}
        if not any(reasons.values()):
            return
        reason = "; ".join(reason for reason, infos in reasons.items() if infos)
        with self._builder.step("raise version counters before the graphs", reason):
            self._increment([*reshaped, *viewed])
            for info in overlapping:
                self._builder.add(f"version_{info.index} = {self._name(info)}._version")

    def _bump_versions(self) -> None:
        """Bump, after the graph, the versions of inputs that it writes to, and of overlapping ones still
        unbumped."""
        # those whose metadata alone changes were raised before the graph ran
        written = (info for info in self._infos if info.wrapper_version_bumps and info.is_mutated)
        raised = [info for info in written if not info.changes_metadata_only]
        reason = "autograd must see the writes inside the graph" if raised else "no version counter changes"
        with self._builder.step("raise version counters", reason, sites=_sites(raised)):
            self._increment(raised)
            for info in self._overlapping_written_back():
                with self._builder.block(f"if {self._name(info)}._version == version_{info.index}:"):
                    self._increment([info])

    def _overlapping_written_back(self) -> list[InputAliasInfo]:
        """Return the written overlapping inputs that get their new data by a write to their base."""
        overlapping = (info for info in self._infos if info.base is not None and info.version_bumps)
        return [info for info in overlapping if info.mutation_type is MutationType.MUTATED_OUT_GRAPH]

    def _increment(self, infos: list[InputAliasInfo]) -> None:
        each = [self._name(info) for info in infos for _ in range(info.version_bumps)]
        if each:
            self._builder.add(f"increment_version(({', '.join(each)},))")


def _without_repeats(tensor: Any) -> str:
    """Return an index that skips repeated elements; empty if there are none."""
    parts = [":1" if part.stop else ":" for part in index_without_repeats(tensor)]
    return f"[{', '.join(parts)}]" if ":1" in parts else ""


def _sites(infos: Iterable[InputAliasInfo]) -> tuple[Site, ...]:
    return sites_of(write.origin for info in infos for write in info.writes)
