"""`aotlens.verify`: compiles a function for given arguments and compares one call with eager."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.verify.captured import same_random_state
from aotlens.verify.compare import Verification, compare
from aotlens.verify.first_call import observe_alone
from aotlens.verify.world import callable_tensors, copies, world


def verify(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Verification:
    """Compiles `fn` for these arguments and compares one call, forward and backward, with eager.

    Works on copies: arguments, the module's state, gradients and the random state stay as they are.
    """
    return verify_with(CompileOptions(), fn, args, kwargs)


def verify_with(
    options: CompileOptions, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Verification:
    """`verify` with compile options."""
    eager_world, compiled_world = copies(world(fn, args, kwargs))
    state = [item.tensor for item in callable_tensors(eager_world.fn)] if eager_world.fn is fn else []
    expected = observe_alone(eager_world, state=state)
    with same_random_state():
        compiled = compile_direct(
            compiled_world.fn, compiled_world.args, dict(compiled_world.kwargs), options
        )
    return compare(observe_alone(compiled_world, call=compiled.call, state=state), expected)
