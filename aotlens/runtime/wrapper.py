"""The text of `call`: what runs around the graphs on each call of the compiled function."""

from contextlib import nullcontext

from aotlens.codegen.records import Generated
from aotlens.ir.program import Node
from aotlens.ir.render import Names, literal
from aotlens.ir.slots import Gradient, RngOffset
from aotlens.ir.subclasses import Wrapped
from aotlens.partition.records import Partitioned
from aotlens.runtime.autograd.leaves import (
    created_leaves,
    inputs_without_graph_use,
    reshaped_leaves,
    write_leaves,
)
from aotlens.runtime.autograd.saved_tensors import check_hooks, without_hooks
from aotlens.runtime.autograd_checks import reject_dual_tensors, reject_retain_grad_on_inputs
from aotlens.runtime.call_text import CallText
from aotlens.runtime.graph_text import call_graph, inference_context
from aotlens.runtime.guards import Guards
from aotlens.runtime.inference_tensors import LineModes, reject_other_mode, write_inference_tensors
from aotlens.runtime.input_changes import InputChanges
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.output_views import OutputAliases
from aotlens.runtime.pytrees import Unpacking, argument_names, output_text
from aotlens.runtime.rng_state import write_advance, write_reading
from aotlens.runtime.side_effects import check_exportable, write_side_effects
from aotlens.runtime.subclasses import outer_outputs, output_name, write_unwrapping, write_wrapping
from aotlens.runtime.synthetic_bases import write_bases


class WrapperText:
    """Writes `call` for one target."""

    def __init__(self, builder: TextBuilder, parts: Partitioned, code: Generated, names: Names) -> None:
        self._call = CallText(builder, parts, names, argument_names(parts.joint.captured, names))
        self._builder = builder
        self._parts = parts
        self._code = code
        self._names = names
        self._captured = parts.joint.captured
        self._meta = parts.joint.meta
        self._has_seen = False
        self._nested: tuple[str, ...] = ()
        """Flat names of arguments that come in nested containers."""

    def write(self) -> None:
        """Write `def call(…)` with its steps, in the order in which they run.

        Arguments in nested containers come as `*args, **kwargs`, after the module's own tensors.
        """
        structure = self._captured.structure
        flat = structure.arguments is None or bool(structure.parameters)
        arguments = self._call.arguments[: len(self._captured.flat_inputs)]
        owned = len(arguments) - (structure.arguments.num_leaves if structure.arguments else 0)
        self._nested = () if flat else tuple(arguments[owned:])
        parameters = [*(arguments if flat else arguments[:owned]), *([] if flat else ["*args", "**kwargs"])]
        aliases = OutputAliases(self._call)
        changes = InputChanges(self._call, aliases)
        self._builder.add("", "")
        with self._builder.block(f"def call({', '.join(parameters)}):"):
            self._unpack_arguments()
            self._check_arguments()
            write_bases(self._call)
            changes.write_before_graphs()
            write_leaves(self._call)
            self._run_graphs()
            changes.write_after_graphs()
            write_inference_tensors(self._call)
            aliases.write_all()
            self._set_grad_mode()
            self._return_outputs()

    def _unpack_arguments(self) -> None:
        with self._builder.step("unpack arguments", "the arguments are nested containers"):
            if self._nested:
                unpacking = Unpacking(self._builder, self._captured.subject.name, list(self._nested))
                unpacking.write(self._captured.structure.arguments)

    def _check_arguments(self) -> None:
        guards = Guards(self._call)
        guards.behind_dynamo &= not self._code.is_standalone
        guards.write()
        reject_other_mode(self._call)
        reject_retain_grad_on_inputs(self._call)
        check_hooks(self._call)
        check_exportable(self._captured, self._code.is_standalone)
        self._has_seen = guards.has_seen

    def _run_graphs(self) -> None:
        outer = outer_outputs(self._parts)
        reject_dual_tensors(self._call)
        if self._code.backward is not None:
            self._run_function([out.name for out in outer])
            return
        program, builder, names = self._code.forward.program, self._builder, self._names
        graph_inputs = [names.node(graph_input.node) for graph_input in program.inputs]
        write_unwrapping(builder, self._captured, names)
        write_reading(builder, self._parts, program, names)
        results = [output_name(out) for out in self._parts.forward.outputs]
        targets = f"{', '.join(results)}{',' if len(results) == 1 else ''} = " if results else ""
        context = inference_context(self._parts, self._code.forward)
        with builder.block(context) if context else nullcontext():
            builder.add(f"{targets}{call_graph(self._code.forward, graph_inputs)}")
        write_advance(builder, self._parts, program, RngOffset().name)
        write_wrapping(builder, outer, {id(graph_input.node) for graph_input in program.inputs}, names)

    def _run_function(self, results: list[str]) -> None:
        """Write the call of `CompiledFunction`, whose outputs are `results`."""
        pairs = zip(self._call.arguments, self._captured.inputs, strict=True)
        unused = inputs_without_graph_use(self._parts)
        passed = [
            *(name for name, captured_input in pairs if captured_input.is_graph_input),
            *(self._call.arguments[captured_input.slot.index] for captured_input in unused),
            *(f"before_{self._call.arguments[info.index]}" for info in reshaped_leaves(self._parts)),
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
        behind_dynamo = self._captured.subject.frontend == "dynamo" and not self._code.is_standalone
        if not (behind_dynamo or self._has_seen):
            return "CompiledFunction.apply"
        unknown = "torch._C._are_functorch_transforms_active()"
        unknown = f"is_new or {unknown}" if self._has_seen else unknown
        self._builder.add(f"apply = CompiledFunction.apply if {unknown} else apply_compiled")
        return "apply"

    def _without_gradient(self) -> frozenset[str]:
        """Return inputs that require grad but get none: they are detached, since their graph may be freed."""
        joint = self._parts.joint
        if joint.failing is not None and not joint.always_fails:
            return frozenset()
        gradients = ((out.slot, out.value) for out in self._parts.joint.gradients)
        none = {slot.index for slot, value in gradients if isinstance(slot, Gradient) and value is None}
        # which may have a gradient if some tangents are undefined
        if joint.dependence.user_grad_sources or joint.always_fails:
            dependence = self._parts.joint.dependence.tangents
            none = {index for index in none if not dependence.get((Gradient, index))}
        return frozenset(self._call.arguments[index] for index in none)

    def _viewed_without_gradient(self, without: frozenset[str]) -> dict[str, str]:
        """View with grad mode off the inputs without gradient that a custom function made a view of."""
        input_indices = (info.custom_function_input for info in self._meta.outputs)
        viewed = (self._call.arguments[index] for index in input_indices if index is not None)
        names = {name: f"before_{name}" for name in viewed if name in without}
        if names:
            with self._builder.block("with torch.no_grad():"):
                for name, view in names.items():
                    self._builder.add(f"{view} = {name}.view_as({name})")
        return names

    def _set_grad_mode(self) -> None:
        enabled = self._meta.grad_mode_after  # None where the function leaves its caller's
        with self._builder.step("set grad mode", "the function changes grad mode"):
            if enabled is not None:
                self._builder.add(f"torch.set_grad_enabled({enabled})")

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
