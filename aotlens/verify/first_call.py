"""Make the same call in eager and compiled, on copies, and leave the caller's state unchanged."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from aotlens.rng_state import same_random_state
from aotlens.verify.compare import Verification, compare
from aotlens.verify.observe import EVERYTHING, Observation, Probe, observe
from aotlens.verify.tensors.free_variables import restoring_tensors
from aotlens.verify.tensors.prepared_call import PreparedCall, callable_tensors, copies, prepare_call


def verify_first_call(
    compiled: Callable[..., Any],
    eager: Callable[..., Any],
    inputs: Sequence[object],
    names: Sequence[str] | None = None,
) -> Verification:
    """Compare two callables on the same flat inputs, which stay unchanged.

    `names` are the user's names of the inputs.  State that the callables hold themselves (a graph module's
    own tensors) is restored after each run; gradients in `.grad` and the random state are not touched.
    """
    called = prepare_call(eager, inputs, names=names)
    state = [item.tensor for fn in (eager, compiled) for item in callable_tensors(fn)]
    eager_call, compiled_call = copies(called, keep_fn=True)
    expected = observe_alone(eager_call, call=as_tuple(eager), state=state)
    actual = observe_alone(compiled_call, call=as_tuple(compiled), state=state)
    return compare(actual, expected)


def as_tuple(flat: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callable that always returns a tuple where the flat callable returns a list or a tuple."""

    def call(*inputs: object) -> Any:
        result = flat(*inputs)
        return tuple(result) if isinstance(result, list) else result

    return call


def observe_alone(
    prepared: PreparedCall,
    probe: Probe = EVERYTHING,
    call: Callable[..., Any] | None = None,
    state: Sequence[Tensor] = (),
) -> Observation:
    """Observe one call and restore the random state and the state tensors afterwards."""
    with ExitStack() as stack:
        stack.enter_context(same_random_state())
        stack.enter_context(restoring_tensors(state))
        return observe(prepared, probe, call)
