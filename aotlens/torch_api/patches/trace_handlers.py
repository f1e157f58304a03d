"""What a trace does in place of torch's own functions: the handler of `TRACE`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

__all__ = ["TraceHandlers"]


@dataclass(frozen=True, slots=True)
class TraceHandlers:
    """What happens in place of torch's functions on the thread that traces."""

    rng_state: Any
    """Has the methods of a generator, and those for `torch.cuda`."""
    call_object_method: Callable[..., Any]
    """Takes the torchbind object, the name of the method, arguments and keyword arguments."""
    checkpoint_region: Callable[..., AbstractContextManager[None]]
    """Takes the `context_fn` and the arguments of a checkpoint; its function runs within the result."""
    note_undefined_tangents: Callable[[Any], None]
    """Takes the node of a custom function that wants None in place of zeros."""
    apply_graphs: Callable[[tuple[Any, Any], Any, dict[str, Any]], Any]
    """Calls a custom function that Dynamo made two graphs of: graphs, arguments, settings."""
    prepare_index: Callable[[Any], Any]
    """Returns the index of a tensor, with integer tensors as numbers."""
    gradient_rules: Mapping[str, Callable[..., Any]]
    """By name, what is asked before the rule of a higher-order operator; may return NotImplemented."""
    call_higher_order: Callable[..., Any]
    """Calls the function that `torch.cond` and its like would compile."""
    make_linear_map: Callable[..., Any]
    """Makes the linear map of `torch.func.linearize` from the derivative and tangents."""
    flex_attention_env: Callable[[], Any]
    """Returns the context in which `flex_attention` calls its operator."""
    launch_kernel: Callable[..., Any]
    """Takes torch's own function first, then its arguments."""
