"""The lines that refuse a call in which autograd would lose what it gives in eager.

Invariant: nothing has run, and nothing has been written, when one of them raises.
"""

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.records import Captured
from aotlens.runtime.builder import TextBuilder


def refuse_kept_gradients(
    builder: TextBuilder, captured: Captured, meta: ViewAndMutationMeta, arguments: list[str]
) -> None:
    """`retain_grad` asks for the gradient of a value that lies inside of autograd's one node."""
    flat = len(captured.flat_inputs)  # after these come bases, which are nobody's
    for info in meta.inputs:
        given = captured.inputs[info.index]
        if info.index < flat and info.seen_by_autograd and given.requires_grad and not given.is_leaf:
            with builder.block(f"if {arguments[info.index]}.retains_grad:"):
                message = (
                    f"compiled `{captured.subject.name}` writes to `{given.slot.name}`, whose gradient is to "
                    "be kept (`retain_grad`): that of the new value would be lost; pass a clone"
                )
                builder.add(f"raise RuntimeError({message!r})")


def refuse_dual_tensors(builder: TextBuilder, captured: Captured, arguments: list[str]) -> None:
    """Forward-mode AD would lose its tangents: neither graphs nor `CompiledFunction` take any."""
    tensors = [
        f"({given.slot.name!r}, {name})"
        for name, given in zip(arguments, captured.inputs, strict=True)
        if given.is_tensor
        and given.duplicate_of is None
        and (given.fake.is_floating_point() or given.fake.is_complex())
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
