"""Python: side effects, free variables, modules and arguments of other types."""

from aotlens.errors import RejectedAssertionError
from aotlens.unsupported.case import Case

CASES = (
    Case(
        "lazy-module",
        "a lazy module without its parameters (`{module}`)",
        "call it once before",
    ),
    Case(
        "module-rebinds-tensor",
        "the module binds `{name}` to another tensor",
        "write in place: `self.{name}.copy_(…)`",
    ),
    Case(
        "captured-gradient-lost",
        "a function that reads `{name}`, which requires grad, also in a way that is not "
        "traced, so that its gradient would be lost",
        "read it by one name, or pass it as an argument",
    ),
    Case(
        "container-key",
        "a key of type `{type}` that the function adds to `{container}`",
        "use strings or numbers as keys",
    ),
    Case(
        "python-random",
        "a function that uses random numbers from `{name}`, the same ones at every call",
        "get the number from torch (`torch.rand(())`), or outside, and pass it in",
    ),
    Case(
        "iterator",
        "a function that takes items from the iterator `{name}`, the same ones at every call",
        "take them outside and pass them in",
    ),
    Case(
        "deepcopy",
        "`copy.deepcopy` of a tensor, or of what holds one, in the function",
        "use `x.detach().clone()`, or make the copy outside",
    ),
    Case(
        "side-effect",
        "a function that changes {binding}, a side effect that a compiled call would not repeat",
        "return the value instead; or, where only a first call does it (it fills a cache), "
        "call the function once before it is compiled; or use `torch.compile(fn, "
        "backend='aotlens')`",
    ),
    Case(
        "rebound-tensor-is-read",
        "a function that reads `{name}`, a tensor that is no buffer, and binds it to another one",
        "register it as a buffer, write in place (`{name}.copy_(…)`), pass it in and return it, or use "
        "`torch.compile(fn, backend='aotlens')`",
    ),
    Case(
        "side-effect-in-backward",
        "a hook or a custom backward that changes {binding}, a side effect that a compiled "
        "backward would not repeat",
        "return the tensor and hook it outside, or use `torch.compile(fn, backend='aotlens')`",
    ),
    Case(
        "new-layer-side-effect",
        "a layer (`{type}`) that the function creates and stores in {binding}",
        "create it in `__init__`, or call the function once before it is compiled",
    ),
    Case(
        "new-object-side-effect",
        "an object of type `{type}` that the function stores in {binding}",
        "store each tensor under a name or a key of its own, or return it",
    ),
    Case(
        "outer-optimizer",
        "the step of an optimizer that is created outside the function (`{type}`)",
        "take the step outside, or use `torch.compile(fn, backend='aotlens')`",
    ),
    Case(
        "unexpected-fake",
        "a fake tensor that was created outside the traced function (Unexpected fake)",
        "pass it as an argument",
        error=RejectedAssertionError,
    ),
    Case(
        "argument-type",
        "an argument of type `{type}`",
        "pass a tensor",
    ),
    Case(
        "torchscript-module",
        "a TorchScript module, {module}",
        "compile the module that `torch.jit.script` was given",
    ),
    Case(
        "mode-left-changed",
        "a function that leaves {mode} changed",
        "use a `with` block, or change it outside",
    ),
    Case(
        "write-to-free-variable",
        "a write to `{input}`, which the function also reads as a free variable (an attribute"
        " that is no buffer, a closure, a global): {sizes}",
        "read it by the one name, or use `aotlens.compile`",
        error=RejectedAssertionError,
    ),
    Case(
        "write-to-captured-tensor",
        "mutation by `{operator}` of a tensor that is neither argument, parameter nor buffer",
        "pass it as an argument, register it as a buffer, or use `torch.compile(fn, backend='aotlens')`",
    ),
    Case(
        "argument-class",
        "an object of the class `{type}` as the argument `{input}` (all flat_args must be "
        "KNOWN_TYPES or opaque types)",
        "pass the tensors that it holds, or use `aotlens.compile`",
        error=RejectedAssertionError,
    ),
)
