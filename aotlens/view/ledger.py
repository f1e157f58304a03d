"""Words for inputs and outputs: how an input is handled, what an output aliases.

`view/tabs/ledger.py` makes the rows of the tab of them.
"""

from collections import Counter

from aotlens.model.report import Base, Input, Output, Target, Tensor
from aotlens.view.quantities import counted

KINDS = {
    "Parameter": "parameter",
    "Buffer": "buffer",
    "UserInput": "argument",
    "SymInt": "size",
    "Constant": "constant",
    "FreeTensor": "captured",
}
"""Names of the kinds of inputs."""


OUTPUTS = {
    "non_alias": "new",
    "alias_of_input": "view of {base}",
    "is_input": "is {base}",
    "alias_of_intermediate_save_as_output": "view of {base}",
    "alias_of_intermediate": "view of {base}",
    "alias_of_intermediate_base_is_user_output": "view of {base}",
    "unsafe_view_alias": "new (a view whose base is internal)",
    "custom_function_view": "view of {base} by a custom function",
}
"""Words for each output type."""


def kind_name(kind: str) -> str:
    """Return the kind of an input in words: `argument`, `parameter`, `captured`."""
    return KINDS.get(kind, kind)


def kind_counts(target: Target) -> str:
    """`148 parameters, 2 arguments`."""
    kinds = Counter(kind_name(entry.kind) for entry in target.inputs)
    return ", ".join(counted(count, kind) for kind, count in kinds.items()) or "none"


def output_count(target: Target) -> str:
    """Return `3, and 1 as side effects`."""
    left = sum(entry.is_side_effect for entry in target.outputs)
    returned = str(len(target.outputs) - left) if len(target.outputs) > left else "none"
    return f"{returned}, and {left} as side effects" if left else returned


def handling(target: Target, entry: Input) -> str:
    """Return how an input is handled: `copied back`, `mutated in the graph, under no_grad`, `read`."""
    parts = []
    if entry.duplicate_of is not None:
        parts.append(f"the same tensor as {_input_name(target, entry.duplicate_of)}")
    if entry.mutates_data:
        parts.append("mutated in the graph" if entry.mutation_type == "mutated_in_graph" else "copied back")
    if entry.mutates_metadata:
        parts.append("shape or strides changed")
    if entry.mutates_storage_metadata:
        parts.append("storage swapped or resized")
    if entry.autograd_change:
        parts.append(entry.autograd_change)
    if entry.hidden_from_autograd:
        parts.append("hidden from autograd")
    elif entry.under_no_grad and entry.mutates_data:
        parts.append("under no_grad")
    if entry.shares_storage_with:
        names = ", ".join(_input_name(target, index) for index in entry.shares_storage_with)
        parts.append(f"shares memory with {names}")
    return ", ".join(parts) or ("read, needs grad" if entry.requires_grad else "read")


def aliasing(target: Target, entry: Output) -> str:
    """Return what an output is: `new, has grad`, `view of cache`."""
    words = OUTPUTS[entry.output_type].format(base=_base_name(target, entry.base))
    words = f"side effect, {words}" if entry.is_side_effect else words
    return f"{words}, has grad" if entry.requires_grad else words


def tensor_text(tensor: Tensor | None) -> str:
    """Return `f32[8, 16]`, with the device unless it is the CPU."""
    if tensor is None:
        return "not a tensor"
    kind = f"{tensor.subclass} " if tensor.subclass else ""
    device = "" if tensor.device == "cpu" else f" {tensor.device}"
    return f"{kind}{tensor.short()}{device}"


def is_mutated(entry: Input) -> bool:
    """Return True if the function writes to the input's data, geometry or storage."""
    return entry.mutates_data or entry.mutates_metadata or entry.mutates_storage_metadata


def is_changed(entry: Input) -> bool:
    """Return True if the input is mutated, or changes its role in the autograd graph."""
    mutated = is_mutated(entry) or entry.mutation_type != "not_mutated"
    return mutated or entry.autograd_change is not None


def is_notable(entry: Input) -> bool:
    aliased = entry.duplicate_of is not None or bool(entry.shares_storage_with)
    return is_changed(entry) or aliased or entry.kind == "UserInput"


def _input_name(target: Target, index: int) -> str:
    return target.inputs[index].name if index < len(target.inputs) else f"input {index}"


def _base_name(target: Target, base: Base | None) -> str:
    if base is None:
        return "another tensor"
    if base.kind == "input":
        return _input_name(target, base.index)
    if base.kind == "output" and base.index < len(target.outputs):
        return target.outputs[base.index].name
    return "an intermediate"
