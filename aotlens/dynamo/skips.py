"""Why Dynamo leaves a function to Python, in the user's terms."""

from typing import NamedTuple

__all__ = ["LAYER_OF_TORCH", "NO_OPERATORS", "SKIPS", "Skip", "skip_of"]


class Skip(NamedTuple):
    """One reason for which Dynamo skips a function."""

    start: str
    """The beginning of Dynamo's message."""
    reason: str
    hint: str
    is_loss: bool


LAYER_OF_TORCH = "compile() of a layer of torch's own"
"""The listener's reason for a layer whose `compile()` has no effect, which Dynamo's own reason hides."""

NO_OPERATORS = "Dynamo decided to skip the frame while tracing: No ops"

SKIPS: tuple[Skip, ...] = (
    Skip(
        LAYER_OF_TORCH,
        "up to torch 2.13 its `compile()` starts Dynamo in torch's own `forward`, and Dynamo skips torch's"
        " code",
        "pass the layer to `torch.compile`, which traces through it, and call the module that it returns",
        True,
    ),
    Skip("no tensor-related objects found", "no tensor is among its arguments or globals", "", False),
    Skip(NO_OPERATORS, "it runs no tensor operation", "", False),
    Skip("frame is in the Dynamo skipfiles list", "its file is on Dynamo's list of code to skip", "", True),
    Skip(
        "frame has already started executing",
        "it was running already as Dynamo met it",
        "call the compiled function outside of it",
        True,
    ),
    Skip(
        "Dynamo tracing is disabled",
        "Dynamo is switched off",
        "look for `torch.compiler.set_stance`, `disable=True` and TORCHDYNAMO_DISABLE",
        True,
    ),
    Skip(
        "tracing is non-recursively disabled",
        "`torch.compiler.disable(recursive=False)` stands before it",
        "remove the decorator, or call it outside of compiled code",
        True,
    ),
    Skip(
        "non-infra torch dispatch mode present",
        "a TorchDispatchMode is active",
        "enter the mode inside of the compiled function, or compile outside of it",
        True,
    ),
)
"""Other reasons are shown in Dynamo's words."""

REPORTED_ELSEWHERE = (
    "an error was suppressed during compilation",  # the graph break is reported
    "compilation failed with a custom frame execution strategy",  # the recompile limit is reported
    "frame is already Dynamo-generated code",
)


def skip_of(reason: str) -> Skip | None:
    """Return Dynamo's reason in our words; None where another record reports the same."""
    if reason.startswith(REPORTED_ELSEWHERE):
        return None
    words = next((entry for entry in SKIPS if reason.startswith(entry.start)), None)
    return words or Skip(reason, reason.rstrip("."), "", True)
