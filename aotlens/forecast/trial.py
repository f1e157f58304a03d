"""Make series of calls of a compiled function: in eager, to see which calls are valid, and under Dynamo.

Invariant: each series runs in a fork, so that neither the script nor another series sees its changes:
counters, caches, Dynamo's compilations.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.forecast.fork import in_fork
from aotlens.forecast.recorded_call import RecordedCall, Step
from aotlens.forecast.state_snapshot import snapshot_of
from aotlens.model.dynamo import Compilation, Dynamo, DynamoFunction
from aotlens.model.recompilations import ForecastCall
from aotlens.session.dynamo.log import DynamoLog
from aotlens.torch_api.dynamo.state import forecasting_settings

__all__ = ["Series", "Settings", "compiled_series", "works_in_eager"]


@dataclass(frozen=True, slots=True)
class Series:
    """Dynamo's compilations for the recorded call, and for each call after it."""

    first_compilations: int
    calls: tuple[ForecastCall, ...]

    @property
    def compilations(self) -> int:
        return self.first_compilations + sum(call.compilations for call in self.calls)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a series."""

    seconds: float
    is_dynamic: bool = False
    """Compile like `torch.compile(dynamic=True)`."""
    keeps_state: bool = False
    """Whether counters and lists keep their values from call to call."""


def works_in_eager(call: RecordedCall, steps: Sequence[Step], seconds: float) -> tuple[bool, ...]:
    """Return for each call whether the uncompiled function accepts it; raises ForkError."""

    def run() -> tuple[bool, ...]:
        torch.compiler.set_stance("force_eager")
        return tuple(_works(call, step) for step in steps)

    return in_fork(run, seconds)


def _works(call: RecordedCall, step: Step) -> bool:
    try:
        _make(call, call.function, step)
    except Exception:  # noqa: BLE001 (the user's function may raise anything; then it is no call of it)
        return False
    return True


def compiled_series(call: RecordedCall, steps: Sequence[Step], settings: Settings) -> Series:
    """Make the calls, the first of which is like the recorded one; raises ForkError."""

    def run() -> Series:
        torch.compiler.reset()
        torch.compiler.set_stance("default")
        log = DynamoLog()
        known: set[tuple[str, str]] = set()
        calls = []
        state = snapshot_of(call)
        with forecasting_settings(settings.is_dynamic), log.listening():
            for step in steps:
                if not settings.keeps_state:
                    state.restore()
                _make(call, call.compiled, step)
                new = list(_new(log.dynamo(), known))
                calls.append(_call_of(step, new))
        return Series(calls[0].compilations, tuple(calls[1:]))

    return in_fork(run, settings.seconds)


def _new(dynamo: Dynamo | None, known: set[tuple[str, str]]) -> Iterator[tuple[DynamoFunction, Compilation]]:
    """Yield the compilations since the last call, and add them to `known`: the log has those of all calls."""
    for function in dynamo.functions if dynamo is not None else ():
        for compilation in function.compilations:
            key = function.qualname, compilation.id
            if key not in known:
                known.add(key)
                yield function, compilation


def _call_of(step: Step, new: Sequence[tuple[DynamoFunction, Compilation]]) -> ForecastCall:
    failed = [(entry.cause, function.qualname) for function, entry in new if entry.cause is not None]
    return ForecastCall(
        step.label,
        len(new),
        tuple(cause for cause, _ in failed if cause is not None),
        tuple(name for _, name in failed),
    )


def _make(call: RecordedCall, function: Callable[..., Any], step: Step) -> None:
    args, kwargs = call.arguments(step)
    with warnings.catch_warnings(), _in_modes(call, step.modes):
        warnings.simplefilter("ignore")
        function(*args, **kwargs)


@contextmanager
def _in_modes(call: RecordedCall, modes: Sequence[str]) -> Iterator[None]:
    modules = call.modules
    trained = [module.training for module in modules]
    with ExitStack() as stack:
        for mode in modes:
            if mode in ("grad", "no_grad"):
                stack.enter_context(torch.set_grad_enabled(mode == "grad"))
            else:
                for module in modules:
                    module.train(mode == "train")
        try:
            yield
        finally:
            if any(mode in ("train", "eval") for mode in modes):
                for module, training in zip(modules, trained, strict=True):
                    module.train(training)
