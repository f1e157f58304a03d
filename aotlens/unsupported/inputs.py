"""Inputs: kinds of tensors, and mutations that cannot be applied to the caller's tensors."""

from aotlens.errors import RejectedAssertionError, RejectedRuntimeError
from aotlens.unsupported.case import Case

CASES = (
    Case(
        "geometry-change-after-read",
        "a change of the sizes or strides of `{input}` under `no_grad`, where {reason}",
        "take a view instead, or make the change with grad mode on",
    ),
    Case(
        "data-of-other-sizes-after-read",
        "an assignment of other sizes to `.data` of {tensor}, after a use that autograd recorded: "
        "the backward has the former sizes",
        "assign first, or to a new tensor",
    ),
    Case(
        "recorded-write-to-expanded-input",
        "a write with a gradient to `{input}`, which is expanded",
        "clone it before writing, or write under `torch.no_grad()`",
    ),
    Case(
        "geometry-change-of-empty-storage",
        "a change of the sizes or strides of `{input}`, whose storage has no memory",
        "give the memory back after the call",
    ),
    Case(
        "storage-resize-of-overlapping-input",
        "a storage resize of `{input}`, which overlaps another input, where the two are no "
        "views of one tensor",
        "resize the storage before the call",
    ),
    Case(
        "geometry-changes-in-two-grad-modes",
        "changes of the sizes or strides of `{input}`, only some of them under `no_grad`",
        "make all of them in one grad mode",
    ),
    Case(
        "geometry-change-before-write",
        "a change of the sizes or strides of `{input}` under `no_grad`, followed by a write "
        "with grad mode on",
        "write first, or make both in one grad mode",
    ),
    Case(
        "recorded-write-to-overlapping-input",
        "a write with a gradient to `{input}`, which overlaps another input, where the two "
        "are no views of one tensor",
        "clone one of them before the call",
    ),
    Case(
        "storage-swap-of-mutated-view",
        "a storage mutation (`set_`, `.data`) of `{input}`, a view with a gradient that is "
        "also mutated in place",
        "return the new tensor instead",
    ),
    Case(
        "storage-swap-and-recorded-write",
        "a storage mutation (`set_`) of `{input}`, but the input has other mutations that we "
        "cannot do in the graph: autograd records a write to it",
        "write under `torch.no_grad()`, or return the new tensor",
        error=RejectedAssertionError,
    ),
    Case(
        "leaf-without-grad-then-written",
        "the leaf `{input}`, which is set to require no grad and then written to with a gradient",
        "return a new tensor",
    ),
    Case(
        "requires-grad-after-detach",
        "`requires_grad_` on `{input}` after it was detached in place, where it was used "
        "before or another input is a view of it",
        "return a new leaf (`x.detach().requires_grad_()`)",
    ),
    Case(
        "detached-input-with-view",
        "`{input}` detached in place and mutated, while `{view}` is a view of it",
        "use `detach`",
    ),
    Case(
        "metadata-mutation-of-subclass",
        "metadata mutation of `{input}`, a `{type}`. Metadata mutations are currently not "
        "allowed on tensor subclasses",
        "return the new tensor instead",
        error=RejectedRuntimeError,
    ),
    Case(
        "requires-grad-of-subclass",
        "a change of `requires_grad` on `{input}`, a tensor subclass",
        "set it before the call",
    ),
    Case(
        "base-is-no-argument",
        "`_base` of {inputs}: inputs that overlap, whose base is no argument",
        "pass the base too",
    ),
    Case(
        "input-layout",
        "a {kind} tensor as the input `{input}`",
        "pass a dense tensor",
    ),
    Case(
        "numpy-input",
        "a numpy array as the input `{input}`",
        "pass `torch.from_numpy(…)` of it",
    ),
    Case(
        "inner-tensor-layout",
        "a {layout} tensor as `{input}`",
        "pass a dense tensor",
    ),
    Case(
        "detach-of-overlapping-input",
        "`detach_` of an input that overlaps another (Can't detach views in-place)",
        "use `detach`",
        error=RejectedRuntimeError,
    ),
    Case(
        "inner-tensor-sizes",
        "a `{type}` in a subclass, of other sizes than its inner tensors, under symbolic sizes",
        "compile it with static sizes",
    ),
    Case(
        "aliased-subclass-inputs",
        "Encountered aliased inputs that are mutated in the graph, but `{tensor}` is a tensor"
        " subclass. This is not supported today",
        "clone one of them before the call",
        error=RejectedRuntimeError,
    ),
    Case(
        "geometry-change-of-shared-input",
        "a change of the sizes or strides of `{input}`, which is read and shares memory with "
        "{other}, of which the backward needs the values",
        "take another view instead",
    ),
    Case(
        "strided-nested-tensor",
        "a nested tensor of strided layout",
        "give `nn.TransformerEncoder` `enable_nested_tensor=False`, or use `layout=torch.jagged`",
    ),
)
