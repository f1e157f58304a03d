"""Numbers among the arguments: integers as symbols, floats as zero-dimensional tensors.

Invariant: where `Recording.floats_as_tensors` holds (for Inductor), the graph never reads a Python float from
a tensor: operators in `FORMS` take the tensor itself, and for all others the float is specialised.
"""

import operator
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeVar

import torch
from torch import fx

from aotlens.capture.provenance.dynamo_nodes import LocatedRunner
from aotlens.capture.provenance.frames import is_user_code
from aotlens.ir.origin import Origin
from aotlens.torch_api.fake.tensors import FakeTensor, FakeTensorMode, with_lazy_shape_env
from aotlens.torch_api.modes import TorchDispatchMode
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.symbolic import create_scalar_symbol, make_shape_env

aten = torch.ops.aten


def fake_mode_for(arguments: Any, symbolic: bool) -> FakeTensorMode:
    """Return the fake mode of fake arguments; for real arguments a new one, with symbols if `symbolic`."""
    for leaf in pytree.tree_leaves(arguments):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=make_shape_env() if symbolic else None)
    return with_lazy_shape_env(mode)


def has_ragged(arguments: Any) -> bool:
    """Return True if an argument is a jagged tensor, whose ragged size needs a shape environment."""
    return any(map(_is_jagged, pytree.tree_leaves(arguments)))


def _is_jagged(value: Any) -> bool:
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
    if not any(map(can_be_symbol, leaves)) or has_ragged(leaves):
        return compiled(False)
    try:
        return compiled(True)
    except Exception:  # noqa: BLE001 (whatever it is, it comes again where no symbol is the cause)
        return compiled(False)


def as_symbol(environment: Any, value: int, name: str) -> IntSymbol:
    """Return a new symbol for an integer of any sign, which never equals a size."""
    return IntSymbol(create_scalar_symbol(environment, value, name).node)


OperatorCall = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""Operator, arguments, keyword arguments."""

FORMS: dict[Any, Any] = {
    aten.add.Tensor: aten.add.Tensor,
    aten.add_.Tensor: aten.add_.Tensor,
    aten.sub.Tensor: aten.sub.Tensor,
    aten.sub_.Tensor: aten.sub_.Tensor,
    aten.mul.Tensor: aten.mul.Tensor,
    aten.mul_.Tensor: aten.mul_.Tensor,
    aten.div.Tensor: aten.div.Tensor,
    aten.div_.Tensor: aten.div_.Tensor,
    aten.gt.Scalar: aten.gt.Tensor,
    aten.ge.Scalar: aten.ge.Tensor,
    aten.lt.Scalar: aten.lt.Tensor,
    aten.le.Scalar: aten.le.Tensor,
    aten.eq.Scalar: aten.eq.Tensor,
    aten.ne.Scalar: aten.ne.Tensor,
    aten.clamp_min.default: aten.clamp_min.Tensor,
    aten.clamp_max.default: aten.clamp_max.Tensor,
    aten.clamp.default: aten.clamp.Tensor,
}
"""For an operator with a number: the equivalent operator with a zero-dimensional tensor."""

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    "FloatPow": operator.pow,
    "PowByNatural": operator.pow,
    "FloatTrueDiv": operator.truediv,
    "IntTrueDiv": operator.truediv,
    "Max": lambda left, right: torch.where(left > right, left, right),
    "Min": lambda left, right: torch.where(left < right, left, right),
    "Abs": operator.abs,
    "ToFloat": operator.pos,
}
"""By sympy class: the function with two operands, or one."""
UNARY = "OpaqueUnaryFn_"
"""The prefix of sympy's classes for `sqrt`, `sin` and similar functions."""

NUMBERS: dict[type, type] = {torch.SymFloat: float, torch.SymInt: int, torch.SymBool: bool}


class Floats:
    """The tensors for the symbolic floats of one recording."""

    def __init__(self, recorder: TorchDispatchMode) -> None:
        self._recorder = recorder
        self._tensors: dict[Any, Any] = {}
        """By sympy expression."""
        self._symbols: set[Any] = set()

    def define(self, number: torch.SymFloat, tensor: torch.Tensor) -> None:
        """Set the tensor of a float argument."""
        self._tensors[number.node.expr] = tensor
        self._symbols.add(number.node.expr)

    def specialised(self, values: Any) -> Any:
        """Specialise all numbers that depend on a float; Dynamo guards on its value."""
        return pytree.tree_map(self._specialised, values)

    def _specialised(self, value: Any) -> Any:
        kind = NUMBERS.get(type(value))
        if kind is None or not value.node.is_symbolic() or not value.node.expr.free_symbols & self._symbols:
            return value
        return kind(value)

    def with_tensors(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OperatorCall:
        """Return the call with tensors in place of symbolic floats, if it is equivalent."""
        if func not in FORMS or not _has_float((args, kwargs)):
            return func, args, kwargs
        with self._recorder:
            try:
                return self._with_tensors(func, args, kwargs)
            except LookupError:  # arithmetic on other symbols, or with a function without a row
                return func, args, kwargs

    def _with_tensors(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OperatorCall:
        """Return the call; no row of `FORMS` takes a tensor as `alpha`, so the other operand is scaled."""
        like = next(arg for arg in args if isinstance(arg, torch.Tensor))
        alpha = kwargs.get("alpha")
        if isinstance(alpha, torch.SymFloat):
            other = args[1] if isinstance(args[1], torch.Tensor) else self._operand(args[1], like)
            scaled = other * self._operand(alpha, other)
            return func, (args[0], scaled), {key: value for key, value in kwargs.items() if key != "alpha"}
        operands = tuple(arg if isinstance(arg, torch.Tensor) else self._operand(arg, like) for arg in args)
        bounds = {key: self._operand(arg, like) for key, arg in kwargs.items()}
        return FORMS[func], operands, bounds

    def _operand(self, number: Any, like: torch.Tensor) -> Any:
        """Return a number's tensor for use beside an operand, without affecting the result's dtype."""
        if number is None:
            return None
        kind = torch.result_type(like, 1.0)
        if not isinstance(number, torch.SymFloat):
            return torch.scalar_tensor(number, dtype=kind, device=like.device)
        tensor = self._tensor(number.node.expr)
        return tensor if like.dim() and like.is_floating_point() else tensor.to(kind)

    def _tensor(self, expression: Any) -> Any:
        known = self._tensors.get(expression)
        if known is None:
            known = self._tensors[expression] = self._compute(expression)
        return known

    def _compute(self, expression: Any) -> Any:
        if expression.is_number:
            return float(expression)
        name = type(expression).__name__
        if name.startswith(UNARY):
            return getattr(torch, name.removeprefix(UNARY))(self._tensor(expression.args[0]))
        function = ARITHMETIC[name]
        operands = [self._tensor(argument) for argument in expression.args]
        return reduce(function, operands) if len(operands) > 1 else function(operands[0])


def _has_float(values: Any) -> bool:
    return any(isinstance(leaf, torch.SymFloat) for leaf in pytree.tree_leaves(values))


class FloatRunner(LocatedRunner):
    """Runs a Dynamo graph, and records each number that it reads from a tensor.

    A float is no node of the graph if the recorder has `floats_as_tensors`: its tensor replaces it.
    """

    def run_node(self, n: fx.Node) -> Any:
        number = self._known_number(n)
        if isinstance(number, torch.SymFloat) and self.recorder.floats_as_tensors:
            floats = self.recorder.floats = self.recorder.floats or Floats(self.recorder)
            floats.define(number, self.env[n.args[0]])  # type: ignore[index]
            return number
        if number is None:
            return super().run_node(n)
        with self.at_node(n):
            self.recorder.origin = Origin(self.recorder.origins.current_frames(), "_local_scalar_dense")
            self.recorder.read_number(self.env[n.args[0]], number)  # type: ignore[index]
        return number

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        floats = self.recorder.floats
        return super().output(
            target, *((args, kwargs) if floats is None else floats.specialised((args, kwargs)))
        )

    def _known_number(self, n: fx.Node) -> Any:
        """Return Dynamo's symbol for a number that the graph reads from a tensor."""
        number = n.meta.get("example_value") if n.target == "item" else None
        if not isinstance(number, (torch.SymFloat, torch.SymInt)):
            return None
        return number if number.node.shape_env is self.recorder.fake_mode.shape_env else None
