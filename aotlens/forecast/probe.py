"""Run a script until everything that it compiles was called once, and forecast from these calls.

Invariant: nothing is compiled in the script's own process: its calls run in eager, and the script ends at the
second call of something.  A training loop therefore makes at most one step.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from aotlens.forecast.forecast import Budget, forecast_of
from aotlens.forecast.recorded_call import RecordedCall
from aotlens.forecast.vary import VariedName, VaryError
from aotlens.model.recompilations import Forecast
from aotlens.torch_api.dynamo.state import skip_frame_in_dynamo
from aotlens.torch_api.patches.compilers import WRAP_COMPILED
from aotlens.torch_api.patches.scopes import patched

__all__ = ["Probe", "ScriptIsDone", "names_of", "with_eager_backend"]

MOST_CALLS = 4
"""The limit of calls of one function while another compiled one has not been called."""
PASSED_ON = ("fullgraph", "dynamic", "disable")
"""Arguments of `torch.compile` that affect guards, besides `guard_filter_fn`."""


class ScriptIsDone(BaseException):
    """Ends the script: everything that it compiles was called."""


@dataclass(slots=True)
class Probe:
    """The calls so far and their forecasts; mutable."""

    asked: tuple[VariedName, ...]
    budget: Budget
    forecasts: list[Forecast] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    """Why functions lack what `asked` names."""
    _calls: dict[object, int] = field(default_factory=dict)
    """By code of the function; 0 until it is called."""
    _is_inside: bool = False

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Forecast from the first call of each function that is compiled within the block."""
        with with_eager_backend(), patched(WRAP_COMPILED, self._wrapped):
            torch.compiler.set_stance("force_eager")
            try:
                yield
            finally:
                torch.compiler.set_stance("default")

    def _wrapped(self, function: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
        key = _key(function)
        self._calls.setdefault(key, 0)

        @functools.wraps(compiled)
        def probed(*args: Any, **kwargs: Any) -> Any:
            if self._is_inside:
                return compiled(*args, **kwargs)
            self._is_inside = True
            try:
                self._meets(key, RecordedCall(function, compiled, args, kwargs))
                return compiled(*args, **kwargs)
            finally:
                self._is_inside = False

        return probed

    def _meets(self, key: object, call: RecordedCall) -> None:
        self._calls[key] += 1
        if self._calls[key] == 1:
            self.forecast(call)
        elif all(self._calls.values()) or self._calls[key] >= MOST_CALLS or self._has_answer:
            raise ScriptIsDone

    @property
    def _has_answer(self) -> bool:
        """Return True if the request is answered, so that nothing else matters."""
        return bool(self.asked and self.forecasts)

    def forecast(self, call: RecordedCall) -> None:
        """Add the forecast of a call."""
        try:
            self.forecasts.append(forecast_of(call, self.asked, self.budget))
        except VaryError as error:
            self.without.append(str(error))


def _key(function: Callable[..., Any]) -> object:
    """Return a key that is equal for all layers of a class of the user's, which share one forecast.

    A layer of torch's own has one for itself: two `nn.Sequential` run different code.
    """
    for owner in (getattr(function, "__self__", None), getattr(function, "__wrapped__", None)):
        if isinstance(owner, nn.Module):
            return id(owner) if type(owner).__module__.startswith("torch.") else type(owner)
    return getattr(function, "__code__", function)


@contextmanager
def with_eager_backend() -> Iterator[None]:
    """Make `torch.compile` use the backend `eager` within the block; options that affect guards stay."""
    original = torch.compile

    @functools.wraps(original)
    def compile(model: Any = None, /, **compile_options: Any) -> Any:
        if "model" in compile_options:
            model = compile_options.pop("model")
        if model is None:
            return lambda decorated: compile(decorated, **compile_options)
        settings = {name: compile_options[name] for name in PASSED_ON if name in compile_options}
        filters = {
            name: value
            for name, value in (compile_options.get("options") or {}).items()
            if name == "guard_filter_fn"
        }
        if filters:
            settings["options"] = filters
        return original(model, backend="eager", **settings)

    torch.compile = skip_frame_in_dynamo(compile)
    try:
        yield
    finally:
        torch.compile = original


def names_of(variations: Sequence[VariedName]) -> str:
    """Return the request as text."""
    return ", ".join(f"`{name.text}`" for name in variations)
