"""Storages: swaps, resizes, `as_strided`, and writes to memory that is seen more than once."""

from aotlens.errors import RejectedRuntimeError
from aotlens.unsupported.case import Case

CASES = (
    Case(
        "storage-mutation-of-input",
        "storage mutation of `{input}`",
        "return the new tensor instead",
    ),
    Case(
        "data-outside-inference-mode",
        "an assignment to `.data`, outside `inference_mode`, of an output that was created "
        "under it (inference tensors do not track version counter)",
        "create it under `torch.no_grad()`",
    ),
    Case(
        "storage-of-several-inputs",
        "storage mutation of `{input}`, which ends on the storage of several inputs",
        "return the new tensor instead",
    ),
    Case(
        "as-strided-beyond-written-view",
        "a write to a tensor where `as_strided`, called on a part of it, reads more than that"
        " part; the gradients would differ from eager",
        "call `as_strided` on the whole tensor, or after the write",
    ),
    Case(
        "as-strided-beyond-input",
        "`as_strided` that reads elements of the storage which its input does not have",
        "pass the tensor that has them",
    ),
    Case(
        "as-strided-beyond-typed-view",
        "`as_strided` that reads outside a view of another dtype, or outside a conjugate view",
        "call it on the base of that view",
    ),
    Case(
        "write-to-repeated-elements",
        "a write to a part of a view that repeats elements, in another dtype or conjugated",
        "clone it first",
    ),
    Case(
        "invalid-view",
        "a view with a gradient, taken before it or its base got other sizes or strides in "
        "place{where}, and used afterwards",
        "take the view after that change, or make the change on another view (`x = x.t()`)",
    ),
    Case(
        "operator-metadata-mutation",
        "metadata mutation by `{operator}`",
        "take a view instead",
    ),
    Case(
        "resize-under-no-grad",
        "a change of sizes, under `no_grad`, of a tensor with a grad_fn (`{operator}`), so "
        "that its gradient has the wrong sizes",
        "take a view instead, or make the change with grad mode on",
    ),
    Case(
        "resize-to-more-elements",
        "`{operator}` to more elements, or of a tensor that is not contiguous",
        "create a new tensor",
    ),
    Case(
        "resize-of-viewed-storage",
        "a tensor whose storage grows while another tensor is a view of it",
        "create a new tensor",
    ),
    Case(
        "foreign-storage",
        "a storage that none of the function's tensors has",
        "pass the tensor",
    ),
    Case(
        "data-of-other-dtype",
        "an assignment to `.data` of another dtype (`{source}`; it is `{target}`)",
        "create a new tensor (`x = x.to(dtype)`)",
    ),
    Case(
        "data-of-inference-tensor",
        "an assignment to `.data` of a tensor that was created under `inference_mode`",
        "create it under `torch.no_grad()`",
    ),
    Case(
        "data-of-view",
        "an assignment to `.data` of a view with a gradient, of another view of the same storage",
        "take another view instead",
    ),
    Case(
        "set-with-grad",
        "`set_` of a tensor that requires grad, or to one, with grad mode on (derivative for "
        "set_ is not implemented)",
        "call it under `torch.no_grad()`",
    ),
    Case(
        "write-to-expanded",
        "a write to an expanded tensor",
        "clone it before writing",
    ),
    Case(
        "write-to-overlapping-windows",
        "a write to windows that overlap (`unfold`): more than one element of the written-to "
        "tensor refers to a single memory location",
        "clone it before writing",
    ),
    Case(
        "operator-on-expanded",
        "`{operator}` on an expanded tensor (unsupported operation: more than one element of "
        "the written-to tensor refers to a single memory location)",
        "clone it before writing",
        error=RejectedRuntimeError,
    ),
    Case(
        "operator-on-overlapping-elements",
        "`{operator}` on elements that overlap (`as_strided`, or windows of `unfold`), of "
        "which more than one refers to a single memory location",
        "clone them first",
    ),
    Case(
        "write-to-swapped-view",
        "a write with a gradient to a view of an input that got another storage (`.data`, `set_`)",
        "assign to a tensor that is no view, or write under `torch.no_grad()`",
    ),
    Case(
        "write-to-repeated-memory",
        "a write to a part of an input, {input}that repeats elements (`expand`, `unfold`, `as_strided`)",
        "clone it first, pass its base, or compile without dynamic sizes",
    ),
    Case(
        "detach-of-view",
        "`detach_` of a view, or of an input that overlaps another (Can't detach views in-place)",
        "use `detach`",
        error=RejectedRuntimeError,
    ),
)
