"""Outputs: aliases, views and grad_fns that the wrapper cannot regenerate."""

from aotlens.unsupported.case import Case

CASES = (
    Case(
        "output-with-own-grad-fn",
        "an output with its own grad_fn on the storage of an input or of another output: it was detached and "
        "then written to with a gradient, or got that storage (`.data`)",
        "return a clone",
    ),
    Case(
        "view-before-detach",
        "a view with a gradient that is taken before its base is detached in place, where the"
        " base is no input or is mutated too",
        "use `detach`, or take the view after that",
    ),
    Case(
        "storage-of-other-sizes",
        "an output with a gradient that gets a storage of other sizes (`.data`, `set_`), so "
        "that its gradient has the wrong sizes",
        "assign a tensor of the same sizes, or return a clone",
    ),
    Case(
        "view-before-storage-swap",
        "an output that is a view with a gradient of a tensor that gets another storage "
        "afterwards (`.data`, `set_`)",
        "take the view after that, or return a clone",
    ),
    Case(
        "view-with-swapped-storage",
        "an output that is a view with a gradient and gets another storage (`.data`, `set_`)",
        "assign to a tensor that is no view, or return a clone",
    ),
    Case(
        "geometry-change-after-storage-swap",
        "an output with a gradient on the storage that `{input}` gets (`.data`, `set_`), whose "
        "base gets other sizes or strides in place after that",
        "make the change on another view (`x = x.t()`), or return a clone",
    ),
    Case(
        "output-on-input-storage",
        "an output with its own grad_fn that gets the storage of `{input}` (`set_`, `.data`)",
        "return a clone",
    ),
    Case(
        "view-into-subclass",
        "an output with a gradient that is a view between a `{subclass}` and its inner "
        "tensors (`values()`, `chunk`, `unbind`)",
        "return a clone",
    ),
    Case(
        "custom-view-of-changed-input",
        "a view of the input `{input}`, which is {change}, made by a custom "
        "`autograd.Function` (custom function view)",
        "return a clone from the function",
    ),
    Case(
        "custom-view-of-subclass",
        "a view of a tensor subclass made by a custom `autograd.Function`",
        "return a clone",
    ),
    Case(
        "custom-view-then-write",
        "a view that a custom `autograd.Function` makes of a tensor that is mutated "
        "afterwards (custom function view); its backward raises in eager",
        "return a clone from the function",
    ),
    Case(
        "view-of-created-leaf",
        "a view of a leaf that the function creates (`requires_grad_()`) and does not return,"
        " beside another view of its storage",
        "return the leaf itself too, or a clone of the view",
    ),
    Case(
        "custom-view-of-created-leaf",
        "a view that a custom `autograd.Function` makes of a leaf that the function creates "
        "(`requires_grad_()`)",
        "return a clone from the function",
    ),
    Case(
        "reinterpreted-view-of-changed-leaf",
        "a view of {tensor} as {reinterpretation}, beside a change of its sizes or storage",
        "return a clone",
    ),
    Case(
        "hook-on-view",
        "a hook (`register_hook`) on an output that is a view, on a leaf that the function "
        "creates, or on a view that such an output is taken of",
        "register it on the output after the call, or on the base of the view",
    ),
    Case(
        "output-shares-inner-tensor",
        "an output that shares memory with `{tensor}` inside a subclass, and is written to",
        "clone the output",
    ),
    Case(
        "custom-views-of-intermediate",
        "outputs that a custom `autograd.Function` makes as views of an intermediate without a grad_fn",
        "clone one of them",
    ),
    Case(
        "output-type",
        "an output of type `{type}`",
        "return tensors in tuples, lists or dicts, or register the class with pytree",
    ),
    Case(
        "frozen-parameter",
        "an output that is an `nn.Parameter` of the function's own, and does not require grad",
        "return the tensor, and call `nn.Parameter` outside of the function",
    ),
    Case(
        "inference-output-with-grad",
        "an output that is created under `inference_mode` and requires grad",
        "create it under `torch.no_grad()`",
    ),
    Case(
        "requires-grad-of-changed-view",
        "`requires_grad_()` on a view of `{input}`, whose sizes or storage change",
        "call it on a clone of the view",
    ),
)
