"""The one run of the user's function on fake tensors.

Invariant: whatever happens in the user's function, grad mode and the mode stack are afterwards as before.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from aotlens.capture.inputs import make_inputs
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, FlatCall, Structure, Subject
from aotlens.capture.settings import Settings
from aotlens.capture.variables import VariableObserver
from aotlens.errors import AotlensError, UnsupportedError, UserError
from aotlens.torch_api import (
    DATA_DEPENDENT_ERRORS,
    UnsupportedOperatorException,
    python_dispatcher,
    pytree,
    without_onednn,
)


def call_boundary(run: Callable[[], Any]) -> Any:
    """The frame at which the walk for the user's frames ends."""
    return run()


def capture_run(subject: Subject, call: FlatCall, settings: Settings) -> Captured:
    """Run the function once and keep the recording open.

    Raises:
        UnsupportedError: data-dependent control flow, an operator or case that is refused.
    """
    recorder = Recorder(settings.fake_mode, settings.decompositions, call_boundary.__code__)
    grad_enabled = torch.is_grad_enabled()
    observer = VariableObserver() if settings.observe_variables else None
    with settings.fake_mode:
        inputs = make_inputs(recorder, call.values, call.slots, settings.dynamic)
    random_state = torch.get_rng_state()
    with recording(recorder, settings.dynamic), restored_grad_mode(), refusing(recorder):
        with observer or nullcontext():
            result = call_boundary(lambda: call.run(recorder, inputs))
        after = torch.is_grad_enabled()
    _refuse_seeding(recorder, random_state)
    paths, spec = pytree.tree_flatten_with_path(result)
    return Captured(
        subject=subject,
        inputs=inputs,
        outputs=tuple(value for _, value in paths),
        output_names=tuple("out" + pytree.keystr(path) for path, _ in paths),
        structure=Structure(call.arguments, spec),
        recorder=recorder,
        grad_enabled=grad_enabled,
        grad_mode_after=after,
        forward_nodes=len(recorder.nodes),
        variables=observer.variables() if observer is not None else (),
    )


def _refuse_seeding(recorder: Recorder, before: torch.Tensor) -> None:
    """Fake tensors draw nothing, so a state that has moved was set by the function itself."""
    if not torch.equal(before, torch.get_rng_state()):
        torch.set_rng_state(before)
        raise UnsupportedError(
            "a function that sets the random state (`torch.manual_seed`)", recorder.span, "seed outside of it"
        )


KEEP_TENSORS = "keep the value a tensor (`torch.where`), or move this line out of the compiled function"


@contextmanager
def recording(recorder: Recorder, dynamic: bool) -> Iterator[None]:
    """Within the block, operators go through the recorder to fake tensors.

    oneDNN's recurrent layers ask for the grad mode when they run, which a graph cannot answer; without them
    torch takes its own kernels apart.
    """
    with ExitStack() as stack:
        stack.enter_context(without_onednn())
        if dynamic:
            stack.enter_context(python_dispatcher())
        stack.enter_context(recorder.fake_mode)
        stack.enter_context(recorder)
        yield


@contextmanager
def restored_grad_mode() -> Iterator[None]:
    before = torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.set_grad_enabled(before)


@contextmanager
def refusing(recorder: Recorder) -> Iterator[None]:
    """Turn what torch raises about fake tensors into one error that names the user's line."""
    try:
        yield
    except AotlensError:
        raise
    except DATA_DEPENDENT_ERRORS as error:
        op = error.args[0] if error.args else "an operator"
        raise UnsupportedError(
            f"control flow or a shape that depends on data (`{op}`)",
            recorder.span,
            KEEP_TENSORS,
        ) from error
    except UnsupportedOperatorException as error:
        raise UnsupportedError(
            f"the operator `{error.args[0]}`, which has no fake kernel", recorder.span
        ) from error
    except NotImplementedError as error:
        if "HigherOrderOperator" in str(error) or "registered" in str(error):
            raise UnsupportedError(
                f"a higher-order operator ({_first_line(error)})", recorder.span
            ) from error
        raise
    except RuntimeError as error:
        if type(error).__name__ == "GuardOnDataDependentSymNode":
            raise UnsupportedError(
                "control flow that depends on data", recorder.span, KEEP_TENSORS
            ) from error
        if "data is not allocated yet" in str(error):
            raise UnsupportedError(
                "an operator that reads a tensor's values", recorder.span, KEEP_TENSORS
            ) from error
        if ".numpy() is not supported" in str(error):
            raise UnsupportedError(
                "a tensor's values in numpy", recorder.span, "keep to torch, or leave this line uncompiled"
            ) from error
        if "modified by an inplace operation" in str(error):
            raise UserError(
                f"the backward of this function fails in eager too: {_first_line(error)}", span=recorder.span
            ) from error
        raise


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
