"""One check in C++ for arguments like those that an earlier call was checked with line by line.

Invariant: it compares class, dispatch keys, dtype, device, sizes, strides and `requires_grad`, on which every
line that it spares depends; whatever it does not take goes through these lines again.
"""

from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import has_symbols

SEEN = """
tensors_like = torch._C._dynamo.guards.TensorGuards


def seen(*tensors):
    # becomes a check in C++: are these like the tensors of a call that was checked line by line?
    return False
"""


def comparable(captured: Captured, checked: list[tuple[str, CapturedInput]]) -> list[str]:
    """The names of the tensors that it compares; none where sizes are symbols, which each call is asked for.

    A tensor that is given twice is never taken: which arguments are one tensor is checked apart.
    """
    inputs = captured.flat_inputs
    if any(given.is_tensor and given.wrapped is None and has_symbols(given.fake) for given in inputs):
        return []
    return [name for name, given in checked if given.wrapped is None]


def remember(names: list[str]) -> str:
    """The line that has the tensors of this call taken from now on."""
    return (
        f"seen = tensors_like({', '.join(names)}, dynamic_dims_sizes=None, dynamic_dims_strides=None).check"
    )


def any_of_torch_func(names: list[str]) -> str:
    """The condition that a tensor belongs to a transform of torch.func, be it one that is over.

    `autograd.Function.apply` unwraps such a tensor, and is left out for tensors that are seen again.
    """
    return f"any(map(torch._C._functorch.is_functorch_wrapped_tensor, ({', '.join(names)},)))"
