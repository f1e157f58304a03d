"""Module text of the `autograd.Function` that connects forward and backward."""

from typing import Any, NamedTuple

import torch

from aotlens.codegen.records import Generated, GraphCode
from aotlens.ir.program import Node, ProgramOutput
from aotlens.ir.render import Names
from aotlens.ir.slots import (
    DIFFERENTIABLE_OUTPUTS,
    GRADIENTS,
    Gradient,
    LeafGradient,
    RngOffset,
    SavedForBackward,
    SavedInput,
)
from aotlens.joint.records import FailingBackward, JointProgram
from aotlens.joint.undefined_tangents import GradientKey
from aotlens.partition.records import Partitioned
from aotlens.partition.rules import is_number
from aotlens.partition.storages import storage_root
from aotlens.runtime.autograd.checks import counts_backward_runs, write_run_count
from aotlens.runtime.autograd.derivatives import DifferentiableBackward
from aotlens.runtime.autograd.double_backward import (
    DIFFERENTIABLE_BACKWARD,
    double_backward_call,
    double_backward_obstacle,
    write_double,
    write_saved_for_double,
)
from aotlens.runtime.autograd.leaves import created_leaves, inputs_without_graph_use, reshaped_leaves
from aotlens.runtime.autograd.tangents import BackwardWrappers, TangentText, write_stride_coercion
from aotlens.runtime.autograd.undefined_tangents import BACKWARD_OF_SOME, Conditions, UndefinedTangents
from aotlens.runtime.graph_runs import (
    graph_context,
    uses_functional_rng,
    write_advance,
    write_reading,
    write_run,
)
from aotlens.runtime.graph_text import graph_name
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.mutations import (
    bind_current_inputs,
    bump_written_versions,
    hold_current_inputs,
    hold_written_inputs,
    reject_second_write,
)
from aotlens.runtime.output_views import write_function_views
from aotlens.runtime.subclasses import (
    outer_inputs,
    outer_outputs,
    output_name,
    write_wrapping,
)
from aotlens.torch_api.autograd import in_callers_context


class GradientPosition(NamedTuple):
    """The position of a gradient among the backward's outputs."""

    key: GradientKey
    output_index: int


def write_function(builder: TextBuilder, parts: Partitioned, code: Generated, names: Names) -> dict[str, Any]:
    """Write `CompiledFunction`, and the functions that its backward calls; nothing in inference.

    Returns, by name, what replaces some of these functions where aotlens loads the text.
    """
    if code.backward is None:
        return {}
    function = _FunctionText(builder, parts, code.backward, names)
    function.wrappers.write_functions(builder)
    builder.add("", "")
    with builder.block("class CompiledFunction(torch.autograd.Function):"):
        builder.add("@staticmethod")
        function.write_forward(code.forward)
        builder.add("", "@staticmethod")
        function.write_backward()
    builder.add("", "", "# `apply` without its Python work per argument for torch.func")
    builder.add("apply_compiled = super(torch.autograd.Function, CompiledFunction).apply")
    if parts.joint.always_fails:
        return {}
    write_double(builder, parts, code.backward, names)
    function.undefined.write_error(graph_name(code.backward.program))
    return function.late()


class _FunctionText:
    """Writes the two methods of `CompiledFunction` for one target."""

    def __init__(self, builder: TextBuilder, parts: Partitioned, code: GraphCode, names: Names) -> None:
        self._builder = builder
        self._parts = parts
        self._joint = parts.joint
        self._code = code
        """Of the backward."""
        self._names = names
        self._counted = counts_backward_runs(parts)
        self._outer = outer_outputs(parts)
        self.wrappers = BackwardWrappers(parts, code.program, names, code.compile is not None)
        self._tangents = [] if self._joint.always_fails else self.wrappers.tangents(self._outer)
        self.undefined = UndefinedTangents(builder, parts, code.program, self._tangents)
        saved = [saved_input.node for saved_input in parts.saved_inputs]
        self._saved_tensors = [node for node in saved if not is_number(node)]
        self._saved_numbers = [node for node in saved if is_number(node)]

    def write_forward(self, code: GraphCode) -> None:
        builder, parts, names, forward = self._builder, self._parts, self._names, self._parts.forward
        results = [output_name(out) for out in forward.outputs_of(*DIFFERENTIABLE_OUTPUTS)]
        results += [output_name(out) for out in forward.outputs_of(RngOffset)]
        results += [f"saved_{index}" for index in range(len(forward.outputs_of(SavedForBackward)))]
        with builder.block(f"def forward(ctx, {', '.join(self._forward_parameters())}):"):
            write_run(builder, parts, code, names, results)
            self.wrappers.write_forward(builder, self._outer)
            write_wrapping(builder, self._outer, {id(item.node) for item in forward.inputs}, names)
            # without a count: `Partition.saved` says which of the values own memory
            with builder.step("save for backward", f"values chosen by the policy `{parts.policy}`"):
                self._save()
                write_saved_for_double(builder, parts, names)
                if self._counted:
                    builder.add("ctx.spent = False")
                hold_current_inputs(builder, parts, names)
            write_function_views(builder, parts, names)
            with builder.step("mark non-differentiable outputs", "outputs without a gradient"):
                if fixed := self._fixed_outputs():
                    builder.add(f"ctx.mark_non_differentiable({', '.join(fixed)})")
            builder.add("ctx.set_materialize_grads(False)")
            builder.add(f"return {', '.join(out.name for out in self._outer)}")

    def _fixed_outputs(self) -> list[str]:
        """Return the names of the tensors without gradient."""
        pairs = zip(self._joint.forward_outputs, self._joint.differentiable, strict=True)
        fixed = {id(out) for out, is_differentiable in pairs if not is_differentiable}
        outputs = [(outer.name, outer.inner[0]) for outer in self._outer]
        return [name for name, out in outputs if id(out) in fixed and _is_tensor(out.value)]

    def _forward_parameters(self) -> list[str]:
        """Return one parameter per graph input, then the former views of leaves whose sizes have changed."""
        captured, names, parts = self._joint.captured, self._names, self._parts
        leaves = [captured.inputs[info.index].node for info in reshaped_leaves(parts)]
        changed = {id(node) for node in leaves}
        nodes = [outer_input.node for outer_input in outer_inputs(captured, parts.forward.inputs, names)]
        nodes += [item.node for item in inputs_without_graph_use(parts) if item.node is not None]
        return [
            *(f"now_{names.node(node)}" if id(node) in changed else names.node(node) for node in nodes),
            *(names.node(node) for node in leaves if node is not None),
            *created_leaves(parts),
        ]

    def _save(self) -> None:
        """Save the backward's values in its order, inputs under their own names."""
        builder, names, forward = self._builder, self._names, self._parts.forward
        outputs = forward.outputs_of(SavedForBackward)
        returned = reversed(forward.outputs_of(*DIFFERENTIABLE_OUTPUTS))
        computed = {id(out.value): output_name(out) for out in returned}
        computed |= {id(out.value): f"saved_{index}" for index, out in enumerate(outputs)}
        aliases = self._detached_aliases()
        for index, root in self._views_of_inputs(outputs).items():
            builder.add(f"counted_{index} = {names.node(root)}.detach()")
            builder.add(f"counted_{index}.data = saved_{index}")
            computed[id(outputs[index].value)] = f"counted_{index}"
        tensors = [
            computed.get(id(node)) or names.node(node) + aliases.get(id(node), "")
            for node in self._saved_tensors
        ]
        numbers = [computed.get(id(node)) or names.node(node) for node in self._saved_numbers]
        tensors += self.wrappers.saved_arguments()
        if tensors:
            builder.add(f"ctx.save_for_backward({', '.join(tensors)})")
        if numbers:
            builder.add(f"ctx.sizes = ({', '.join(numbers)},)")

    def _views_of_inputs(self, saved: tuple[ProgramOutput, ...]) -> dict[int, Node]:
        """Return by index the saved values that are views of an input, each with that input's node.

        A later write to the input bumps the version of such a view too.  Inputs on a storage that the call
        itself writes to are excluded: autograd has checked the saved values by then.
        """
        inputs, infos = self._joint.captured.inputs, self._joint.meta.inputs
        changed = {id(inputs[info.index].storage) for info in infos if info.is_mutated}
        unchanged = {
            id(captured_input.node)
            for captured_input in inputs
            if captured_input.node is not None and id(captured_input.storage) not in changed
        }
        roots = {index: storage_root(out.value) for index, out in enumerate(saved) if _is_tensor(out.value)}
        return {index: root for index, root in roots.items() if id(root) in unchanged}

    def _detached_aliases(self) -> dict[int, str]:
        """Return, for inputs whose geometry or storage the wrapper changes after the forward, the alias to
        save.

        The alias shares the version counter if the wrapper bumps that before the forward.
        """
        inputs, infos = self._joint.captured.inputs, self._joint.meta.inputs
        return {
            id(inputs[info.index].node): ".detach()" if info.changes_metadata_only else ".data"
            for info in infos
            if info.mutates_metadata_or_storage
        }

    def write_backward(self) -> None:
        builder, parts, names, program = self._builder, self._parts, self._names, self._code.program
        if (failing := self._joint.failing) and self._joint.always_fails:
            with builder.block("def backward(ctx, *tangents):"):
                builder.add(f"raise {failing.error}({failing_message(self._joint, failing)!r})")
            return
        parameters = [tangent.parameter for tangent in self._tangents]
        received = [tangent for tangent in self._tangents if tangent.nodes]
        with builder.block(f"def backward(ctx, {', '.join(parameters)}):"):
            if self._code.compile is not None:
                _reject_surroundings(builder, parts, parameters)
            _write_failing(builder, parts, self._tangents)
            graph = self.undefined.write_choice(graph_name(program))
            self.wrappers.read_symbols(builder)
            gradients = self._gradients()
            conditions = self.undefined.write_checks(self.wrappers, len(gradients))
            if self._counted:
                write_run_count(builder, parts)
            with builder.step("coerce tangents", "the backward was traced for tangents with these strides"):
                for tangent in received:
                    self.wrappers.write_coercion(builder, tangent)
                    for node in tangent.nodes:
                        write_stride_coercion(builder, names.node(node), node.val)
            write_reading(builder, parts, program, names)
            bind_current_inputs(builder, parts, names)
            with builder.block("if torch.is_grad_enabled():"):
                self._unpack()
                reject_second_write(builder, parts)
                also_seen = self.wrappers.also_seen(received)
                call = double_backward_call(parts, self._code, names, also_seen, graph)
                builder.add(f"gradients = {call}")
            with builder.block("else:"):
                hold_written_inputs(builder, program, names)
                self._write_graph_inputs()
                with builder.block(graph_context(parts)):
                    builder.add(f"gradients = {self.wrappers.wrapped_call(f'{graph}(inputs)')}")
            bump_written_versions(builder, parts, program, names)
            write_advance(builder, parts, program, "gradients[-1]")
            _return_gradients(builder, gradients, conditions, uses_functional_rng(program))

    def _unpack(self) -> None:
        tensors = [*map(self._names.node, self._saved_tensors), *self.wrappers.saved_arguments()]
        if tensors:
            self._builder.unpack(tensors, "ctx.saved_tensors")
        if self._saved_numbers:
            numbers = list(map(self._names.node, self._saved_numbers))
            self._builder.unpack(numbers, "ctx.sizes")

    def _write_graph_inputs(self) -> None:
        """Give the graph the only references, so that each value's memory is freed after its last use."""
        builder, code, count = self._builder, self._code, len(self._saved_tensors)
        tangents = [self._names.node(item.node) for item in code.program.inputs_except(SavedInput)]
        # wrappers are saved after their inner tensors, and not for the graph
        first = f"[:{count}]" if self.wrappers.saved_arguments() else ""
        tensors = [f"*ctx.saved_tensors{first}"] if count else []
        numbers = ["*ctx.sizes"] if self._saved_numbers else []
        builder.add(f"inputs = [{', '.join([*tensors, *numbers, *tangents])}]")
        if code.donated:
            if_kept = builder.block("if torch._C._autograd._get_current_graph_task_keep_graph():")
            with if_kept, builder.block(f"for index in {code.donated}:"):
                cloned = "inputs[index] = inputs[index].clone()"
                builder.add(f"{cloned}  # the graph overwrites it, and may run again")
        if tensors:
            builder.add("ctx.maybe_clear_saved_tensors()")
        builder.add(f"del {', '.join(tangents)}")

    def _gradients(self) -> list[GradientPosition | None]:
        """Return for each input of the forward the position of its gradient."""
        parts, captured = self._parts, self._joint.captured
        slots = (out.slot for out in self._code.program.outputs if isinstance(out.slot, GRADIENTS))
        keys = dict.fromkeys((type(slot), slot.index) for slot in slots)
        positions = {key: GradientPosition(key, index) for index, key in enumerate(keys)}
        wanted: list[GradientKey | None] = [
            *((Gradient, item.index) for item in outer_inputs(captured, parts.forward.inputs, self._names)),
            *((Gradient, item.slot.index) for item in inputs_without_graph_use(parts)),
            *(None for _ in reshaped_leaves(parts)),
        ]
        leaves = [key for key in keys if key[0] is LeafGradient]
        wanted += leaves or [None for _ in created_leaves(parts)]
        return [None if key is None else positions.get(key) for key in wanted]

    def late(self) -> dict[str, Any]:
        """Return the functions that need the recording, by the names that they replace."""
        parts, code, late = self._parts, self._code, dict[str, Any]()
        if double_backward_obstacle(parts) is None:
            late[DIFFERENTIABLE_BACKWARD] = DifferentiableBackward(parts, code.donated)
        compile_other = code.compile_variant and in_callers_context(code.compile_variant)
        if (partial := self.undefined.partial_backward(compile_other)) is not None:
            late[BACKWARD_OF_SOME] = partial
        return late


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.val, torch.Tensor)


def _write_failing(builder: TextBuilder, parts: Partitioned, tangents: list[TangentText]) -> None:
    """Write the errors of outputs whose own backward raises."""
    if not parts.joint.failing_tangents:
        return
    differentiable = [tangent for tangent in tangents if tangent.differentiable]
    with builder.step("fail as eager", "autograd cannot differentiate some of the outputs"):
        for index, failing in sorted(parts.joint.failing_tangents.items()):
            is_defined = f"{differentiable[index].parameter} is not None"
            builder.raise_if(is_defined, failing.error, failing_message(parts.joint, failing))


def failing_message(joint: JointProgram, failing: FailingBackward) -> str:
    """Return the message of a backward that also raises in eager."""
    results = f" for {', '.join(f'`{name}`' for name in failing.results)}" if failing.results else ""
    return f"the backward of `{joint.captured.subject.name}` fails{results}, in eager too: {failing.message}"


def _reject_surroundings(builder: TextBuilder, parts: Partitioned, tangents: list[str]) -> None:
    """Write checks of contexts that a backend's code does not support, unlike the graph's own text."""
    name = parts.joint.captured.subject.name
    functorch = "torch._C._functorch"
    batched = (
        f"{tangent} is not None and {functorch}.is_legacy_batchedtensor({tangent})" for tangent in tangents
    )
    transform = " or ".join([f"{functorch}.peek_interpreter_stack() is not None", *batched])
    message = (
        f"`{name}`: It looks like you're trying to call a compiled backward function within "
        "vmap/grad/vjp (`is_grads_batched`), which isn't supported; put the transform inside the "
        "compiled function"
    )
    builder.raise_if(transform, "RuntimeError", message)
    if not parts.joint.captured.modes.deterministic:
        message = (
            f"the backward of `{name}` was compiled for a forward without "
            "torch.use_deterministic_algorithms(True), and runs with it; set it before the forward"
        )
        builder.raise_if("torch.are_deterministic_algorithms_enabled()", "RuntimeError", message)


def _return_gradients(
    builder: TextBuilder, gradients: list[GradientPosition | None], conditions: Conditions, gives_offset: bool
) -> None:
    """Return one gradient per input of the forward, None for inputs that need none."""
    is_all = [position.output_index for position in gradients if position is not None] == list(
        range(len(gradients))
    )
    if is_all and not conditions and not gives_offset:
        builder.add("return gradients if len(gradients) > 1 else gradients[0]")
        return
    builder.add(f"return {', '.join(_gradient_text(position, conditions) for position in gradients)}")


def _gradient_text(position: GradientPosition | None, conditions: Conditions) -> str:
    if position is None:
        return "None"
    condition = conditions.get(position.key)
    return (
        f"gradients[{position.output_index}] if {condition} else None"
        if condition
        else f"gradients[{position.output_index}]"
    )
