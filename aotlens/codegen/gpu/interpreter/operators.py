"""The user's registered operators, which the interpreter's process lacks and the main process runs.

Invariant: what an operator mutates reaches the caller's tensors, as if it had run there.
"""

import re
from collections.abc import Callable
from typing import Any

import torch

from aotlens.codegen.gpu.interpreter.records import OperatorCall, OperatorOutput
from aotlens.torch_api.operators import pytree

_OPERATOR = re.compile(r"\btorch\.ops\.(\w+)\.(\w+)\.(\w+)\b")
IN_MAIN_PROCESS = "run_in_main_process"
"""The wrapper's name of the function that runs an operator in the main process."""

OperatorRequest = Callable[[OperatorCall], OperatorOutput]


def with_main_process_operators(source: str) -> str:
    """Return the wrapper's text, with unknown operators redirected to the main process."""

    def redirected(match: re.Match[str]) -> str:
        return (
            match.group()
            if _is_registered(*match.groups())
            else f'{IN_MAIN_PROCESS}("{".".join(match.groups())}")'
        )

    return _OPERATOR.sub(redirected, source)


def _is_registered(namespace: str, operator: str, overload: str) -> bool:
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    return packet is not None and (not hasattr(packet, "overloads") or hasattr(packet, overload))


def run_in_main_process(ask: OperatorRequest) -> Callable[[str], Callable[..., Any]]:
    """Return a function that returns, by name, a callable that runs the operator in the main process."""

    def named(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            answer = ask(OperatorCall(name, args, kwargs))
            if answer.error:
                raise RuntimeError(answer.error)
            after = pytree.tree_leaves((answer.args, answer.kwargs))
            for mine, theirs in zip(pytree.tree_leaves((args, kwargs)), after, strict=True):
                if isinstance(mine, torch.Tensor):
                    mine.copy_(theirs)
            return answer.result

        return call

    return named


def run_operator(call: OperatorCall) -> OperatorOutput:
    """Run an operator in the main process."""
    namespace, operator, overload = call.name.split(".")
    try:
        function = getattr(getattr(getattr(torch.ops, namespace), operator), overload)
        return OperatorOutput(function(*call.args, **call.kwargs), call.args, call.kwargs)
    except Exception as error:  # noqa: BLE001 (the user's code may raise anything; the other end tells it)
        return OperatorOutput(None, call.args, call.kwargs, f"{type(error).__name__}: {error}")
