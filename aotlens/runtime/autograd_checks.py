"""Module text that rejects calls in which `retain_grad` or tangents of forward-mode AD would be lost."""

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.records import Captured
from aotlens.runtime.module_text import TextBuilder


def reject_retain_grad_on_inputs(
    builder: TextBuilder, captured: Captured, meta: ViewAndMutationMeta, arguments: list[str]
) -> None:
    """Write the check that no caller called `retain_grad` on an input that autograd sees written to.

    In eager the input then retains the gradient of its new value, through all later uses of it.  Those uses
    are inside `CompiledFunction`, one autograd node, so the caller's tensor would miss their part.
    """
    flat = len(captured.flat_inputs)  # the rest are synthetic bases, which no caller has
    for info in meta.inputs:
        captured_input = captured.inputs[info.index]
        if (
            info.index < flat
            and info.seen_by_autograd
            and captured_input.requires_grad
            and not captured_input.is_leaf
        ):
            message = (
                f"compiled `{captured.subject.name}` writes to `{captured_input.slot.name}`, on which"
                " `retain_grad` was called: the gradient of the new value would be lost; pass a clone"
            )
            builder.raise_if(f"{arguments[info.index]}.retains_grad", "RuntimeError", message)


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
