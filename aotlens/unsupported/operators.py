"""Operators that cannot be recorded as functional ones."""

from aotlens.errors import RejectedRuntimeError
from aotlens.unsupported.case import Case

CASES = (
    Case(
        "operator-mutation",
        "mutation by `{operator}`: {reason}",
        "return a new tensor from the operator",
    ),
    Case(
        "linearize-free-variable",
        "a gradient by a tensor that a function given to `torch.func.linearize` closes over",
        "pass the tensor as a primal, or detach it",
    ),
    Case(
        "functionalize-outside",
        "the first call of a compiled function under `torch.func.functionalize` (input `{input}`)",
        "call it once before, or put `functionalize` inside the compiled function",
    ),
    Case(
        "foreach-writes-twice",
        "a `torch._foreach_` operator that writes twice to the elements of a view with a gradient",
        "write to each element once in a list, or call the operators one by one",
    ),
    Case(
        "foreach-copy-to-integers",
        "`torch._foreach_copy_` of tensors that require grad to tensors of a dtype without gradients",
        "copy `x.detach()`",
    ),
    Case(
        "no-functional-variant",
        "mutation by `{operator}`, which has no functional variant",
        "use the operator that returns a new tensor",
    ),
    Case(
        "write-of-other-size",
        "`{operator}` to a tensor of another size",
        "use the tensor that it returns without `out=`",
    ),
    Case(
        "out-strides",
        "`{operator}` to a tensor of another size, whose strides are then not contiguous",
        "create a new tensor",
    ),
    Case(
        "out-resizes-view",
        "a view that `out=` resizes",
        "create a new tensor",
    ),
    Case(
        "out-resizes-under-no-grad",
        "`out=` that resizes, under `no_grad`, a tensor with a grad_fn, so that its gradient "
        "has the wrong sizes",
        "create a new tensor",
    ),
    Case(
        "overlapping-arguments",
        "{operator} that writes to `{written}`, which overlaps its argument `{other}` in memory",
        "clone one of them before the call",
    ),
    Case(
        "partial-overlap",
        "`{operator}` of tensors that overlap in part (unsupported operation: some elements "
        "of the input tensor and the written-to tensor refer to a single memory location)",
        "clone one of them first",
        error=RejectedRuntimeError,
    ),
    Case(
        "data-dependent-output",
        "an output of `{operator}`, which depends on data",
        "compute a tensor (`(x == y).all()` instead of `torch.equal`), or move this line out of the compiled"
        " function",
    ),
    Case(
        "no-fake-kernel",
        "the operator `{operator}`, which has no fake kernel",
        "register one with `torch.library.register_fake`",
    ),
    Case(
        "torchbind-grad",
        "a tensor that requires grad, given to a torchbind object",
        "detach it first",
    ),
    Case(
        "torchbind-number",
        "a number that a torchbind object returns",
        "read it outside and pass it in",
    ),
    Case(
        "torchbind-class",
        "the method `{method}` of a torchbind object of the class `{type}`",
        "register a class for tracing with `torch._library.register_fake_class`",
    ),
    Case(
        "torchbind-method",
        "the method `{method}` of a torchbind object, which the class registered for tracing lacks",
        "add `{method}` to it",
    ),
    Case(
        "view-of-sparse",
        "`{operator}` of a {layout} tensor, whose views are not tracked",
        "make it dense first (`to_dense()`)",
    ),
    Case(
        "functorch-transform",
        "a transform of torch.func (vmap, grad, jvp) around a compiled function",
        "compile the function that holds the transform",
    ),
)
