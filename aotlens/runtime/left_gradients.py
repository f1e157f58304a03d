"""The lines that leave gradients in `.grad` of inputs, as a backward inside the function does."""

from aotlens.build.describe import site_of
from aotlens.capture.records import Captured, Leaving
from aotlens.runtime.builder import TextBuilder


def tensors_left(captured: Captured) -> int:
    """How many of the last results are gradients to leave."""
    return sum(not left.is_none for left in captured.structure.gradients)


def check_gradients(builder: TextBuilder, captured: Captured, arguments: list[str]) -> None:
    """Before the graphs: a gradient that the function reads was not there when it was recorded."""
    read = [left for left in captured.structure.gradients if left.leaving is Leaving.PUT_WHERE_NONE_IS]
    if not read:
        return
    with builder.step("check gradients of inputs", "the function reads `.grad` of an input, which had none"):
        for left in read:
            name = captured.inputs[left.index].slot.name
            message = (
                f"compiled `{captured.subject.name}` reads `{name}.grad` and is for a call that finds none "
                f"there: set `{name}.grad = None` before the call"
            )
            with builder.block(f"if {arguments[left.index]}.grad is not None:"):
                builder.add(f"raise ValueError({message!r})")


def write_gradients(
    builder: TextBuilder, captured: Captured, arguments: list[str], results: list[str]
) -> None:
    """At the end of the call; `results` are the gradients."""
    if not captured.structure.gradients:
        return
    remaining = iter(results)
    origins = (left.origin for left in captured.structure.gradients)
    found = (site_of(origin) for origin in origins if origin is not None)
    sites = tuple(dict.fromkeys(site for site in found if site is not None))
    reason = "a backward inside the function, or an assignment"
    with builder.step("leave gradients in inputs", reason, 0, sites):
        for left in captured.structure.gradients:
            name = arguments[left.index]
            if left.is_none:
                if left.leaving is Leaving.PUT:
                    builder.add(f"{name}.grad = None")
                continue
            value = next(remaining)
            if left.leaving is not Leaving.ADDED:
                builder.add(f"{name}.grad = {value}")
                continue
            with builder.block(f"if {name}.grad is None:"):
                builder.add(f"{name}.grad = {value}")
            with builder.block("else:"), builder.block("with torch.no_grad():"):
                builder.add(f"{name}.grad.add_({value})")
