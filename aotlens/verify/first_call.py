"""Compare two flat callables in one call, for a backend or a test that already has both.

Targets of the pipeline are compared in rounds instead: see `targets.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from aotlens.verify.compare import Verification, compare
from aotlens.verify.observe import observe_alone
from aotlens.verify.tensors.prepared_call import copies, prepare_call, state_of


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
    state = state_of(eager, compiled)
    eager_call, compiled_call = copies(called, keep_fn=True)
    expected = observe_alone(eager_call, call=as_tuple(eager), state=state)
    actual = observe_alone(compiled_call, call=as_tuple(compiled), state=state)
    return compare(actual, expected)


def as_tuple(flat: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callable that always returns a tuple where the flat callable returns a list or a tuple."""

    def call(*inputs: object, **options: object) -> Any:
        result = flat(*inputs, **options)
        return tuple(result) if isinstance(result, list) else result

    return call
