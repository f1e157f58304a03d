"""Module text that writes `.grad` of inputs, and rejects calls in which `retain_grad` would be lost."""

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.records import Captured, GradWriteKind
from aotlens.ir.origin import site_of
from aotlens.runtime.module_text import TextBuilder


def written_grad_count(captured: Captured) -> int:
    """Return how many of the last outputs are gradients to put into `.grad`."""
    return sum(not grad_write.is_none for grad_write in captured.structure.gradients)


def check_gradients(builder: TextBuilder, captured: Captured, arguments: list[str]) -> None:
    """Write the check, before the graphs, that `.grad` is None if the function reads it."""
    read = [
        grad_write
        for grad_write in captured.structure.gradients
        if grad_write.kind is GradWriteKind.SET_IF_NONE
    ]
    if not read:
        return
    with builder.step("check gradients of inputs", "the function reads `.grad` of an input, which was None"):
        for grad_write in read:
            name = captured.inputs[grad_write.index].slot.name
            message = (
                f"compiled `{captured.subject.name}` reads `{name}.grad`, which was None when it was"
                f" compiled: set `{name}.grad = None` before the call"
            )
            with builder.block(f"if {arguments[grad_write.index]}.grad is not None:"):
                builder.add(f"raise ValueError({message!r})")


def write_grad_attributes(
    builder: TextBuilder, captured: Captured, arguments: list[str], results: list[str]
) -> None:
    """Write the `.grad` assignments at the end of the call; `results` are the gradients."""
    if not captured.structure.gradients:
        return
    remaining = iter(results)
    origins = (grad_write.origin for grad_write in captured.structure.gradients)
    origin_sites = (site_of(origin) for origin in origins if origin is not None)
    sites = tuple(dict.fromkeys(site for site in origin_sites if site is not None))
    reason = "a backward inside the function, or an assignment"
    with builder.step("write gradients of inputs", reason, 0, sites):
        for grad_write in captured.structure.gradients:
            name = arguments[grad_write.index]
            if grad_write.is_none:
                if grad_write.kind is GradWriteKind.SET:
                    builder.add(f"{name}.grad = None")
                continue
            value = next(remaining)
            if grad_write.kind is not GradWriteKind.ADD:
                builder.add(f"{name}.grad = {value}")
                continue
            with builder.block(f"if {name}.grad is None:"):
                builder.add(f"{name}.grad = {value}")
            with builder.block("else:"), builder.block("with torch.no_grad():"):
                builder.add(f"{name}.grad.add_({value})")


def reject_retain_grad(
    builder: TextBuilder, captured: Captured, meta: ViewAndMutationMeta, arguments: list[str]
) -> None:
    """Write the check that no input retains the gradient of a value inside the one autograd node."""
    flat = len(captured.flat_inputs)  # the rest are synthetic bases, which no caller has
    for info in meta.inputs:
        captured_input = captured.inputs[info.index]
        if (
            info.index < flat
            and info.seen_by_autograd
            and captured_input.requires_grad
            and not captured_input.is_leaf
        ):
            with builder.block(f"if {arguments[info.index]}.retains_grad:"):
                message = (
                    f"compiled `{captured.subject.name}` writes to `{captured_input.slot.name}`, on which"
                    " `retain_grad` was called: the gradient of the new value would be lost; pass a clone"
                )
                builder.add(f"raise RuntimeError({message!r})")


def reject_dual_tensors(builder: TextBuilder, captured: Captured, arguments: list[str]) -> None:
    """Write the check for forward-mode AD, whose tangents neither graphs nor `CompiledFunction` propagate."""
    tensors = [
        f"({captured_input.slot.name!r}, {name})"
        for name, captured_input in zip(arguments, captured.inputs, strict=True)
        if captured_input.is_tensor
        and captured_input.duplicate_of is None
        and (captured_input.fake.is_floating_point() or captured_input.fake.is_complex())
    ]
    if not tensors:
        return
    dual = "torch.autograd.forward_ad"
    with (
        builder.block(f"if {dual}._current_level >= 0:"),
        builder.block("if torch._C._functorch.peek_interpreter_stack() is None:"),
        builder.block(f"for name, tensor in ({', '.join(tensors)},):"),
        builder.block(f"if {dual}.unpack_dual(tensor).tangent is not None:"),
    ):
        before = f"compiled `{captured.subject.name}`: `"
        after = (
            "` is a dual tensor of forward-mode AD, which is not supported; "
            "call `torch.func.jvp` inside the compiled function"
        )
        builder.add(f"raise RuntimeError({before!r} + name + {after!r})")
