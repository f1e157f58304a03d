"""The text of `call`: what runs around the graphs on each call of the compiled function."""

from collections.abc import Iterable
from typing import Any

from aotlens.analysis.records import InputAliasInfo
from aotlens.capture.records import AutogradChange, Captured
from aotlens.codegen.records import Generated
from aotlens.ir.program import Node
from aotlens.ir.render import Names, literal
from aotlens.ir.slots import Gradient
from aotlens.ir.subclasses import Wrapped
from aotlens.partition.records import Partitioned
from aotlens.runtime.aliased_inputs import write_bases
from aotlens.runtime.autograd.checks import (
    check_hooks,
    reject_dual_tensors,
    reject_retain_grad_on_inputs,
    without_hooks,
)
from aotlens.runtime.autograd.leaves import (
    created_leaves,
    inputs_without_graph_use,
    reshaped_leaves,
    write_leaf_output,
    write_leaves,
)
from aotlens.runtime.graph_runs import write_run
from aotlens.runtime.graph_text import chain_text, geometry_text
from aotlens.runtime.guards import Guards
from aotlens.runtime.inference_tensors import LineModes, reject_other_mode, write_inference_tensors
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.mutations import (
    check_saved_aliases,
    preserving_version,
    write_data_copy,
    write_geometry_change,
    write_versions,
    write_versions_before_graphs,
)
from aotlens.runtime.output_views import OutputAliases
from aotlens.runtime.plan import (
    BumpVersions,
    CopyBack,
    DetachInputs,
    RegenerateAliases,
    RequireGrad,
    RequireGradOfOutputs,
    ResizeLeaves,
    SetGeometry,
    SetGradMode,
    Step,
    SwapStorages,
    WrapperPlan,
    gets_new_edge,
    is_reset_leaf,
)
from aotlens.runtime.pytrees import Unpacking, argument_names, output_text
from aotlens.runtime.side_effects import check_exportable, write_side_effects
from aotlens.runtime.subclasses import outer_outputs, output_name, write_wrapping


class WrapperText:
    """Writes `call` for one target."""

    def __init__(self, builder: TextBuilder, parts: Partitioned, code: Generated, names: Names) -> None:
        self._builder = builder
        self._parts = parts
        self._code = code
        self._names = names
        self._captured: Captured = parts.joint.captured
        self._meta = parts.joint.meta
        self.arguments = argument_names(self._captured, names)
        self._has_seen = False
        self._behind_dynamo = self._captured.subject.frontend == "dynamo" and not code.is_standalone
        """Whether Dynamo's own guards ensure that a call fits."""
        self._aliases = OutputAliases(builder, self._captured, names, self.arguments)
        self._reshaped = reshaped_leaves(parts)

    def write(self) -> None:
        """Write `def call(…)` with its steps, in the order in which they run.

        Arguments in nested containers come as `*args, **kwargs`, after the module's own tensors.
        """
        structure = self._captured.structure
        flat = structure.arguments is None or bool(structure.parameters)
        arguments = self.arguments[: len(self._captured.flat_inputs)]
        owned = len(arguments) - (structure.arguments.num_leaves if structure.arguments else 0)
        parameters = [*(arguments if flat else arguments[:owned]), *([] if flat else ["*args", "**kwargs"])]
        builder, plan = self._builder, WrapperPlan(self._parts, self._reshaped)
        builder.add("", "")
        with builder.block(f"def call({', '.join(parameters)}):"):
            self._unpack_arguments([] if flat else arguments[owned:])
            self._check_arguments()
            write_bases(builder, self._captured, self.arguments)
            write_versions_before_graphs(builder, self._meta, self.arguments)
            self._render(plan.before_the_graphs())
            write_leaves(builder, self._parts, self._names, self.arguments)
            self._run_graphs()
            self._render(plan.changes_of_inputs())
            write_inference_tensors(builder, self._captured, self._meta)
            self._render(plan.outputs())
            self._return_outputs()

    def _render(self, steps: Iterable[Step]) -> None:
        for step in steps:
            with self._builder.step(step.title, step.reason, step.bytes_per_call, step.sites):
                self._render_step(step)

    def _render_step(self, step: Step) -> None:  # noqa: C901 (one case a step)
        match step:
            case RequireGrad():
                self._require_grad(step)
            case ResizeLeaves():
                self._resize_leaves(step)
            case DetachInputs():
                self._detach(step)
            case CopyBack():
                for info in step.inputs:
                    if info.storage_swap is None or not info.seen_by_autograd:
                        self._copy(info)
            case SwapStorages():
                self._swap_storages(step)
            case SetGeometry():
                self._set_geometry(step)
            case BumpVersions():
                write_versions(self._builder, list(step.inputs), self._meta, self.arguments)
            case RequireGradOfOutputs():
                for output in step.outputs:
                    write_leaf_output(self._builder, self._parts, output)
            case RegenerateAliases():
                self._aliases.write_bases(self._meta.bases)
                for output in step.outputs:
                    self._aliases.write(output)
                    if output.is_leaf:
                        write_leaf_output(self._builder, self._parts, output)
            case SetGradMode(enabled=bool(enabled)):
                self._builder.add(f"torch.set_grad_enabled({enabled})")

    def _unpack_arguments(self, nested: list[str]) -> None:
        """Bind the flat names of arguments that come in nested containers."""
        with self._builder.step("unpack arguments", "the arguments are nested containers"):
            if nested:
                unpacking = Unpacking(self._builder, self._captured.subject.name, nested)
                unpacking.write(self._captured.structure.arguments)

    def _check_arguments(self) -> None:
        builder, captured = self._builder, self._captured
        guards = Guards(builder, captured, self._meta, self.arguments, self._names)
        guards.write(self._behind_dynamo)
        reject_other_mode(builder, captured, self.arguments)
        reject_retain_grad_on_inputs(builder, captured, self._meta, self.arguments)
        check_hooks(builder, self._parts, self._names)
        check_exportable(captured, self._code.is_standalone)
        self._has_seen = guards.has_seen

    def _require_grad(self, step: RequireGrad) -> None:
        for info in step.inputs:
            off = ".detach_()" if info.autograd is AutogradChange.NEW_LEAF else ""
            self._builder.add(f"{self.arguments[info.index]}{off}.requires_grad_()")

    def _resize_leaves(self, step: ResizeLeaves) -> None:
        for info in step.inputs:
            name, captured_input = self.arguments[info.index], self._captured.inputs[info.index]
            size = literal(captured_input.at_exit.geometry.size, self._names)
            self._builder.add(f"before_{name} = {name}.detach()")
            if info.is_resized:
                self._resize(info)
            elif info.new_geometry is not None:
                preserving = f", {preserving_version(name)}" if info.changes_metadata_only else ""
                geometry = geometry_text(info.new_geometry, self._names)
                line = f"{name}.as_strided_({geometry})"
                if is_reset_leaf(self._parts.joint, info):  # a new edge, as below
                    line = f"{name}.set_({name}.detach().as_strided({geometry}))"
                with self._builder.block(f"with torch.no_grad(){preserving}:"):
                    self._builder.add(line)
            elif is_reset_leaf(self._parts.joint, info):  # a view of the leaf keeps its former edge alive
                self._set(name, f"{name}.new_empty({size})")
            else:
                self._builder.add(f"{name}.data = {name}.new_empty({size})")

    def _detach(self, step: DetachInputs) -> None:
        for output in step.views_before:
            self._aliases.write(output)
        for info in step.inputs:
            name, leaf = self.arguments[info.index], self._captured.inputs[info.index].is_leaf
            self._builder.add(f"{name}.requires_grad_(False)" if leaf else f"{name}.detach_()")

    def _swap_storages(self, step: SwapStorages) -> None:
        for output in step.views_before:
            self._aliases.write(output)
        for info in step.swapped:
            storage_swap: Any = info.storage_swap
            base = self._aliases.base_name(storage_swap.base)
            text = chain_text(f"{base}.detach()", storage_swap.chain, self._names)
            self._builder.add(f"new_{info.index} = {text}")
        for info in step.swapped:
            self._assign_storage(info, f"new_{info.index}")
            if info.seen_by_autograd:
                self._copy(info)
        for info in step.reset:
            self._assign_storage(info, self.arguments[info.index])

    def _assign_storage(self, info: InputAliasInfo, new: str) -> None:
        name = self.arguments[info.index]
        if gets_new_edge(self._parts.joint, info):
            self._set(name, new)
        else:
            self._builder.add(f"{name}.data = {new}")

    def _set(self, name: str, new: str) -> None:
        """Write a `set_`, which gives other memory and a new edge; versions are bumped elsewhere."""
        with self._builder.block(f"with torch.no_grad(), {preserving_version(name)}:"):
            self._builder.add(f"{name}.set_({new})")

    def _run_graphs(self) -> None:
        outer = outer_outputs(self._parts)
        reject_dual_tensors(self._builder, self._captured, self.arguments)
        if self._code.backward is not None:
            self._run_function([out.name for out in outer])
            return
        forward = self._parts.forward
        results = [output_name(out) for out in forward.outputs]
        write_run(self._builder, self._parts, self._code.forward, self._names, results)
        inputs = {id(graph_input.node) for graph_input in forward.inputs}
        write_wrapping(self._builder, outer, inputs, self._names)

    def _run_function(self, results: list[str]) -> None:
        """Write the call of `CompiledFunction`, whose outputs are `results`."""
        pairs = zip(self.arguments, self._captured.inputs, strict=True)
        unused = inputs_without_graph_use(self._parts)
        passed = [
            *(name for name, captured_input in pairs if captured_input.is_graph_input),
            *(self.arguments[captured_input.slot.index] for captured_input in unused),
            *(f"before_{self.arguments[info.index]}" for info in self._reshaped),
            *created_leaves(self._parts),
        ]
        without = self._without_gradient()
        instead = {name: f"{name}.detach()" for name in without} | self._viewed_without_gradient(without)
        inputs = ", ".join(instead.get(name, name) for name in passed)
        line = f"{', '.join(results)} = {self._apply()}({inputs})"
        grad_mode = LineModes(True, self._captured.inference_mode).block(self._builder, self._captured)
        with without_hooks(self._builder, self._parts), grad_mode:
            self._builder.add(line)

    def _apply(self) -> str:
        """Return what calls `CompiledFunction`: not `apply` if no argument can belong to a transform.

        Dynamo guards on the kinds of tensors; in other calls only tensors that were seen before are known.
        """
        if not (self._behind_dynamo or self._has_seen):
            return "CompiledFunction.apply"
        unknown = "torch._C._are_functorch_transforms_active()"
        unknown = f"is_new or {unknown}" if self._has_seen else unknown
        self._builder.add(f"apply = CompiledFunction.apply if {unknown} else apply_compiled")
        return "apply"

    def _without_gradient(self) -> frozenset[str]:
        """Return inputs that require grad but get none: they are detached, since their graph may be freed."""
        joint = self._parts.joint
        if joint.failing is not None and not joint.always_fails:
            return frozenset()  # autograd must reach the outputs whose backward raises from any input
        gradients = ((out.slot, out.value) for out in joint.gradients)
        none = {slot.index for slot, value in gradients if isinstance(slot, Gradient) and value is None}
        if joint.dependence.user_grad_sources or joint.always_fails:
            # some may have a gradient if tangents are undefined, or lead to the backward that raises
            dependence = joint.dependence.tangents
            none = {index for index in none if not dependence.get((Gradient, index))}
        return frozenset(self.arguments[index] for index in none)

    def _viewed_without_gradient(self, without: frozenset[str]) -> dict[str, str]:
        """View with grad mode off the inputs without gradient that a custom function made a view of."""
        input_indices = (info.custom_function_input for info in self._meta.outputs)
        viewed = (self.arguments[index] for index in input_indices if index is not None)
        names = {name: f"before_{name}" for name in viewed if name in without}
        if names:
            with self._builder.block("with torch.no_grad():"):
                for name, view in names.items():
                    self._builder.add(f"{view} = {name}.view_as({name})")
        return names

    def _copy(self, info: InputAliasInfo) -> None:
        name = self.arguments[info.index]
        if info.is_resized and info not in self._reshaped:
            self._resize(info)
        elif info in self._reshaped and not info.is_resized:
            name = f"before_{name}"
        write_data_copy(self._builder, self._parts, info, name)

    def _resize(self, info: InputAliasInfo) -> None:
        """Resize an input below autograd, as the `out=` operator does.

        Autograd rejects a resize of a tensor that requires grad, and counts only the write.
        """
        size = literal(self._captured.inputs[info.index].at_exit.geometry.size, self._names)
        with self._builder.block("with below_views():"):
            self._builder.add(f"{self.arguments[info.index]}.resize_({size})")

    def _set_geometry(self, step: SetGeometry) -> None:
        check_saved_aliases(self._parts, list(step.inputs))
        for info in step.inputs:
            if info in self._reshaped:
                continue
            geometry: Any = info.new_geometry
            name = self.arguments[info.index]
            line = f"{name}.as_strided_({geometry_text(geometry, self._names)})"
            write_geometry_change(self._builder, self._captured, info, (name, line))

    def _return_outputs(self) -> None:
        leaves = [
            f"out_{info.index}"
            if info.base is not None or isinstance(info.value, (Node, Wrapped))
            else literal(info.value, self._names)
            for info in self._meta.outputs
        ]
        spec = self._captured.structure.result
        rebound = self._captured.structure.rebound
        output_count = len(leaves) if spec is None else spec.num_leaves
        leaves, filled = leaves[:output_count], leaves[output_count:]
        if self._captured.structure.rebindings:
            write_side_effects(self._builder, self._captured, self._names, filled)
        if spec is None:
            text = f"({', '.join(leaves)}{',' if len(leaves) == 1 else ''})"
        else:
            existing = {
                path: outer.name if outer.object is None else self._names.object(outer.object, outer.name)
                for path, outer in self._captured.structure.existing_containers
            }
            text = output_text(spec, leaves, existing)
        if rebound:
            named = zip(rebound, filled[-len(rebound) :], strict=True)
            text = f"{text}, {{{', '.join(f'{fqn!r}: {value}' for fqn, value in named)}}}"
        self._builder.add(f"return {text}")
