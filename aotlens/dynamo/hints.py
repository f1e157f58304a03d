"""What to do about a graph break, by torch's code.

Invariant: a hint names an edit that removes the break; other codes show torch's first hint.
"""

from dataclasses import dataclass

from aotlens.dynamo.break_messages import EXPLICIT

__all__ = ["Library", "break_hint", "hint_of", "library_hint"]

BUILTIN, SKIPPED_FUNCTION = "GB0059", "GB0007"
"""A builtin that Dynamo cannot trace, such as `print`; a function that Dynamo never traces, such as
`warnings.warn`."""

HINTS: dict[str, str] = {
    # data-dependent branching
    "GB0170": "compute both sides and choose with `torch.where`, or use `torch.cond`; for a check,"
    " `torch._assert_async`",
    # `Tensor.item()`
    "GB0124": "keep the 0-d tensor: drop `.item()`, `float()` or `int()`",
    # `Tensor.tolist()`
    "GB0109": "keep tensors: use `unbind()` in place of `tolist()`",
    # an operator whose output has a data-dependent size
    "GB0036": "keep the size: `torch.where` and a masked reduction in place of the selection",
    # a method of `logging.Logger`
    "GB0291": "guard the call with `if not torch.compiler.is_compiling():`",
    # a function under `torch.compiler.disable`
    "GB0098": "remove `torch.compiler.disable`, or move the call to an end of the compiled function",
    # `torch._dynamo.graph_break()`
    "GB0025": "remove the call of `torch._dynamo.graph_break()`",
    # `Tensor.backward()`
    "GB0123": "compile up to the loss and call `backward()` outside",
    # `copy.deepcopy` of a tensor
    "GB4198": "copy a tensor with `clone()`",
    # a context manager that Dynamo does not know
    "GB0142": "move the `with` outside of the compiled function",
    # `requires_grad_()` of an intermediate tensor that the function returns
    "GB8985": "call `requires_grad_()` before the compiled function",
    # a class that is defined in the function
    "GB8977": "define the class at the top of the module",
    # a call of a generator function
    "GB0003": "compile the function that consumes the generator",
}
"""By torch's code of the kind of break; the comments say which kind it is."""
EDITED: dict[str, tuple[str, ...]] = {"GB0124": (".item(", "float(", "int(", "bool(", "{")}
"""What an expression contains that the hint edits; without it, the break is in code that it calls."""
PRINT = "remove it, or allow `torch._dynamo.config.reorderable_logging_functions.add(print)`"
ALLOW_WARN = "allow `torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)`"
WARN = f"{ALLOW_WARN}, or move it outside"

SETTINGS: dict[str, str] = {
    "GB0124": "set `torch._dynamo.config.capture_scalar_outputs = True`",
    "GB0036": "set `torch._dynamo.config.capture_dynamic_output_shape_ops = True`",
}
"""What removes a break in code that the user does not edit."""
CALL_OF_LIBRARY = "the break is inside the library: compile the code before and after the call separately"
LIBRARY_COMPILED = (
    "the break is inside the library that is compiled: try a newer release of it, or compile its modules"
    " before and after the break separately"
)


def hint_of(code: str, text: str, torchs: str) -> str:
    """Return the hint for a break at an expression of the user's; torch's own where its code has none."""
    if code == BUILTIN and text.startswith("print("):
        return PRINT
    if code == SKIPPED_FUNCTION:
        is_warning = text.startswith(("warnings.warn(", "warn("))
        return WARN if is_warning else "call it outside of the compiled function and pass its value"
    return HINTS.get(code, torchs)


@dataclass(frozen=True, slots=True)
class Library:
    """Where a break stands whose innermost line is not the user's."""

    is_package: bool
    """Whether it is an installed package, and neither torch nor Python's own modules."""
    is_called: bool
    """Whether compiled code of the user's calls it; otherwise it is compiled by itself."""


def break_hint(code: str, text: str, torchs: str, library: Library | None, reason: str) -> str:
    """Return what to do about a break, which may stand in a library below the user's line."""
    is_explicit = code == EXPLICIT
    is_edited = any(word in text for word in EDITED.get(code, ("",)))
    if library is not None and (is_explicit or library.is_package or not library.is_called or not is_edited):
        return library_hint(code, torchs, reason, is_explicit or library.is_called)
    return hint_of(code, text, torchs)


def library_hint(code: str, torchs: str, reason: str, calls_library: bool) -> str:
    """Return the hint for a break inside a library, called by the user's compiled code or compiled itself.

    Torch's own hint applies there only if it names a setting.
    """
    if code == SKIPPED_FUNCTION and "warnings.warn`" in reason:  # torch names the function in backquotes
        return ALLOW_WARN
    setting = SETTINGS.get(code) or (torchs if "torch._dynamo.config." in torchs else "")
    return setting or (CALL_OF_LIBRARY if calls_library else LIBRARY_COMPILED)
