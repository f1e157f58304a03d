"""The boxed calling convention: one list in, so that the callee can let go of its inputs."""

from collections.abc import Callable
from typing import Any


def boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """A callable that takes one list, whatever convention the backend chose."""
    if getattr(function, "_boxed_call", False):
        return function

    def call_flat(args: list[Any]) -> Any:
        return function(*args)

    return call_flat
