"""Integer arguments as symbols, and the fake mode with the symbols of the arguments."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from aotlens.capture.provenance.frames import is_user_code
from aotlens.torch_api.fake.tensors import FakeTensor, FakeTensorMode, with_lazy_shape_env
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.symbolic import create_scalar_symbol, make_shape_env


def fake_mode_for(arguments: Any, dynamic: bool, ragged: bool) -> FakeTensorMode:
    """Return the fake mode of fake arguments; for real arguments a new one."""
    for leaf in pytree.tree_leaves(arguments):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    symbolic = dynamic or ragged
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=make_shape_env() if symbolic else None)
    return with_lazy_shape_env(mode)


def has_ragged(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if an argument is a jagged tensor, whose ragged size needs a shape environment."""
    return any(map(is_jagged, pytree.tree_leaves((args, kwargs))))


def is_jagged(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.jagged


T = TypeVar("T")


class IntSymbol(torch.SymInt):
    """A symbol that is an `int` to `isinstance` in user code, but not in torch's."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return int if _asked_by_user(sys._getframe(1)) else IntSymbol

    def __str__(self) -> str:
        return str(int(self)) if _asked_by_user(sys._getframe(1)) else super().__str__()

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if _asked_by_user(sys._getframe(1)) else super().__str__()


def _asked_by_user(frame: Any) -> bool:
    """Return True if user code asks, directly or through an abstract class (`numbers.Integral`)."""
    return is_user_code((frame.f_back if frame.f_code.co_filename == "<frozen abc>" else frame).f_code)


def can_be_symbol(value: Any) -> bool:
    """Return True if an argument can be a symbol: 0 and 1 are specialised, as sizes are."""
    return type(value) is int and value not in (0, 1)


def compile_with_int_symbols(compiled: Callable[[bool], T], dynamic: bool, arguments: Any) -> T:
    """Call `compiled` with integer arguments as symbols; if that fails, with the integers specialised.

    User code may need more than a symbol: a dictionary key, part of a name. A ragged size cannot be compared
    with symbols, so beside one the integers are specialised.
    """
    leaves = pytree.tree_leaves(arguments) if dynamic else ()
    if not any(map(can_be_symbol, leaves)) or any(map(is_jagged, leaves)):
        return compiled(False)
    try:
        return compiled(True)
    except Exception:  # noqa: BLE001 (whatever it is, it comes again where no symbol is the cause)
        return compiled(False)


def as_symbol(environment: Any, value: int, name: str) -> IntSymbol:
    """Return a new symbol for an integer of any sign, which never equals a size."""
    return IntSymbol(create_scalar_symbol(environment, value, name).node)
