"""Symbolic sizes and the environment that holds their guards."""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = [
    "create_scalar_symbol",
    "make_shape_env",
    "mark_symbolic",
    "original_expression",
    "paths_to_symbols",
    "print_expression",
    "restore_shape_env",
    "shape_env_snapshot",
    "symbol_hints",
    "symbolic_context_of",
    "unbacked_symbols",
]


def original_expression(number: Any) -> Any:
    """Return the expression of a symbolic number as it was made, before its symbols were simplified."""
    return number.node._expr


DYNAMIC_DIMS_ATTRIBUTE = "_dynamo_dynamic_indices"
"""The attribute in which `torch._dynamo.mark_dynamic` notes the dynamic sizes of a tensor."""


def mark_symbolic(tensor: torch.Tensor, dims: set[int]) -> None:
    """Mark exactly these sizes of a tensor as symbols, as `torch._dynamo.mark_dynamic` does."""
    setattr(tensor, DYNAMIC_DIMS_ATTRIBUTE, dims)


def symbolic_context_of(tensor: torch.Tensor) -> Any:
    """Return how to make the marked sizes of a tensor symbols; None without marks."""
    marked = getattr(tensor, DYNAMIC_DIMS_ATTRIBUTE, None)
    if marked is None:
        return None
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    kinds = [DimDynamic.DUCK if dim in marked else DimDynamic.STATIC for dim in range(tensor.dim())]
    return StatelessSymbolicContext(dynamic_sizes=kinds)


def make_shape_env() -> Any:
    """Return a new environment of symbolic sizes."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv  # 0.6 s to import, only for dynamic shapes

    return ShapeEnv()


def create_scalar_symbol(environment: Any, value: int, name: str) -> torch.SymInt:
    """Return a symbol for a number of any sign that the caller passes, distinct from all sizes."""
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    source = ConstantSource(f"__number_{name}")
    symbol = environment.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
    number: torch.SymInt = environment.create_symintnode(symbol, hint=value, source=source)
    return number


SHAPE_ENV_STATE = ("replacements", "replacements_slocs", "var_to_range", "symbol_guard_counter")
"""What an environment of symbolic sizes changes, beside its guards, when it adds a guard."""


def shape_env_snapshot(environment: Any) -> dict[str, Any]:
    """Return what an environment of symbolic sizes assumes now."""
    return {"guards": len(environment.guards)} | {
        name: getattr(environment, name).copy() for name in SHAPE_ENV_STATE
    }


def restore_shape_env(environment: Any, before: dict[str, Any]) -> None:
    """Reset an environment to what it assumed at the snapshot."""
    if len(environment.guards) == before["guards"]:
        return
    del environment.guards[before["guards"] :]
    for name in SHAPE_ENV_STATE:
        known = getattr(environment, name)
        known.clear()
        known.update(before[name])
    for counter in ("_version_counter", "_replacements_version_counter"):  # what was looked up is out of date
        if hasattr(environment, counter):
            setattr(environment, counter, getattr(environment, counter) + 1)


def unbacked_symbols(environment: Any) -> set[Any]:
    """Return the unbacked symbols of an environment."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type  # sympy is slow to import: for symbols only

    kinds = (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)
    return {symbol for symbol in environment.var_to_range if symbol_is_type(symbol, kinds)}


def paths_to_symbols(val: Any, environment: Any, pending: set[Any]) -> dict[Any, Any]:
    """Return where pending symbols are in a value, as `meta["unbacked_bindings"]` has it.

    Removes those symbols from `pending`.
    """
    from torch.fx.experimental.symbolic_shapes import _free_unbacked_symbols_with_path

    return _free_unbacked_symbols_with_path(val, (), shape_env=environment, pending=pending)


def symbol_hints(mode: FakeTensorMode) -> dict[str, int]:
    """Return the example's sizes by symbol name; empty without symbolic sizes."""
    environment = mode.shape_env
    if environment is None:
        return {}
    known = getattr(environment, "backed_var_to_val", None) or getattr(environment, "var_to_val", {})
    return {str(symbol): int(value) for symbol, value in known.items() if value.is_Integer}


def print_expression(expression: Any, names: dict[str, str]) -> str:
    """Return a size expression as Python text over these names of its symbols."""
    from torch.utils._sympy.printers import PythonPrinter  # sympy: only under dynamic shapes

    class Printer(PythonPrinter):
        def _print_Symbol(self, symbol: Any) -> str:  # noqa: N802 (sympy's naming)
            return names[str(symbol)]

    return str(Printer().doprint(expression))
