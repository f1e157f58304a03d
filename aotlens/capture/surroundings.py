"""What a function may change besides its arguments: attributes of its modules, globals, closures.

Invariant: a change that a compiled call would not repeat is undone and refused by name; Dynamo, which
repeats such changes, is the way out.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.errors import UnsupportedError
from aotlens.report.records import Span

CONTAINERS = (list, dict, set)


@dataclass(frozen=True, slots=True)
class Watched:
    """A namespace or container, and what was in it before the function ran."""

    what: str
    """For the message: `the attribute`, `the global`, `the list`."""
    owner: Any
    before: Any
    """A shallow copy."""


def watch(function: Callable[..., Any]) -> tuple[Watched, ...]:
    """Remember the surroundings of a function or module; torch's own modules see to theirs."""
    if isinstance(function, torch.nn.Module):
        own = (m for m in function.modules() if not type(m).__module__.startswith("torch."))
        return tuple(Watched("the attribute", vars(m), dict(vars(m))) for m in own)
    plain = inspect.unwrap(function)
    plain = getattr(plain, "__func__", plain)
    code = getattr(plain, "__code__", None)
    if code is None:
        return ()
    names = {name: plain.__globals__[name] for name in code.co_names if name in plain.__globals__}
    found = [Watched("the global", plain.__globals__, names)]
    cells = zip(code.co_freevars, plain.__closure__ or (), strict=True)
    inner = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    for name, value in {**names, **inner}.items():
        if type(value) in CONTAINERS:
            found.append(Watched(f"the {type(value).__name__} `{name}`", value, value.copy()))
    return tuple(found)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a variable that is bound later
        return False


def refuse_changes(watched: tuple[Watched, ...], span: Span | None) -> None:
    """Undo and refuse.

    Raises:
        UnsupportedError: something is not as it was.
    """
    for item in watched:
        changed = _changed_name(item)
        if changed is not None:
            named = f"{item.what} `{changed}`" if isinstance(item.before, dict) and changed else item.what
            _restore(item)
            raise UnsupportedError(
                f"a function that changes {named}, which a compiled call would not do again",
                span,
                "return the value instead, or use `torch.compile(fn, backend='aotlens')`",
            )


def _changed_name(item: Watched) -> str | None:
    """The key that changed; an empty name for a list or set; None when nothing did."""
    if not isinstance(item.before, dict):
        same = len(item.owner) == len(item.before) and all(
            now is then for now, then in zip(item.owner, item.before, strict=True)
        )
        return None if same else ""
    for key, value in item.before.items():
        if key not in item.owner or item.owner[key] is not value:
            return str(key)
    if item.what != "the global":  # other globals may appear: imports, caches
        return next((str(key) for key in item.owner if key not in item.before), None)
    return None


def _restore(item: Watched) -> None:
    if isinstance(item.owner, list):
        item.owner[:] = item.before
    elif isinstance(item.owner, set):
        item.owner.clear()
        item.owner.update(item.before)
    else:
        if item.what != "the global":
            for key in [key for key in item.owner if key not in item.before]:
                del item.owner[key]
        item.owner.update(item.before)
