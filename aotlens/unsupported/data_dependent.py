"""Sizes and numbers that depend on data, and symbolic sizes that an operator must know."""

from aotlens.unsupported.case import Case

_KEEP_TENSORS = "keep the value a tensor (`torch.where`), or move this line out of the compiled function"

CASES = (
    Case(
        "data-dependent-control-flow",
        "control flow or a shape that depends on data (`{operator}`)",
        _KEEP_TENSORS,
    ),
    Case(
        "data-dependent-size",
        "control flow that depends on data",
        "keep the value a tensor (`torch.where`), or a symbol (`.item()` in place of "
        "`float()`, `int()`), or move this line out of the compiled function",
    ),
    Case(
        "unknown-size",
        "the size `{symbol}`, which no input and no earlier operator provides",
        "read it (`x.shape[0]`, `x.numel()`) where it is used, or pass it as an argument",
    ),
    Case(
        "size-expression",
        "the size expression `{expression}` in a graph for a backend",
        "compute it outside and pass it as an argument, or use the backend `eager`",
    ),
    Case(
        "derivative-specialises",
        "a derivative that specialises a size",
        "compile it with static sizes",
    ),
    Case(
        "partial-backward-specialises",
        "a backward for some tangents that specialises a size",
        "compile it with static sizes",
    ),
    Case(
        "write-on-data-dependent-storage",
        "a write to one of `{left}` and `{right}`, on one storage, of data-dependent sizes",
        "clone one of them before the call",
    ),
    Case(
        "ragged-and-symbolic-sizes",
        "symbolic sizes beside the ragged size `{name}`",
        "pass a real tensor: its ragged size is symbolic in any case",
    ),
    Case(
        "data-dependent-index",
        "an index (`x[i]`) that depends on data",
        "index with the tensor itself, or use `torch.select(tensor, dim, index)`",
    ),
    Case(
        "tensor-as-size",
        "a tensor as a size, whose value depends on data",
        "take `.item()` of it; leave a layer of packed sequences uncompiled, or pad its input",
    ),
    Case(
        "scan-over-symbolic-size",
        "a loop (`scan`) whose gradient needs a symbolic size in each step",
        "compile it with static sizes",
    ),
    Case(
        "symbolic-size-as-key",
        "a symbolic size as a key (of a dictionary, a set, `functools.lru_cache`)",
        "compile it with static sizes, or look up `int(size)`",
    ),
    Case(
        "operator-needs-static-sizes",
        "an operator that needs static sizes, under symbolic sizes",
        "compile it with static sizes",
    ),
    Case(
        "vmap-needs-static-sizes",
        "an operator whose rule for `torch.func.vmap` needs static sizes, under symbolic sizes",
        "compile it with static sizes",
    ),
    Case(
        "in-place-resize",
        "an operator that changes sizes in place, under symbolic sizes",
        "create a new tensor, or compile it with static sizes",
    ),
    Case(
        "reads-values",
        "code that reads a tensor's memory (`data_ptr()`, its storage, DLPack)",
        _KEEP_TENSORS,
    ),
    Case(
        "numpy-values",
        "a tensor's values in numpy",
        "keep to torch, or leave this line uncompiled",
    ),
    Case(
        "symbolic-exponent",
        "the gradient of a power whose exponent is a symbolic size",
        "multiply, or make the exponent a tensor (`torch.scalar_tensor(n)`)",
    ),
)
