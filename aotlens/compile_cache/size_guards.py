"""The assumptions of a result about symbolic sizes: stored with it, checked for other sizes, and added to
their guards.

Invariant: before a result is used for other sizes, their shape environment has evaluated every condition of
the compilation, so that its owner (Dynamo) guards on them as if it had compiled here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.ir.fingerprint import NoFingerprintError
from aotlens.torch_api.symbolic import unbacked_symbols

__all__ = ["CallSizes", "sizes_of"]


@dataclass(frozen=True, slots=True)
class CallSizes:
    """The symbolic sizes of one call."""

    environment: Any
    symbols: tuple[Any, ...]
    """The symbolic numbers among the inputs."""

    def lines(self) -> Iterator[str]:
        """Yield what is known about the symbols before compilation."""
        for symbol in self.symbols:
            expression = symbol.node.expr
            yield f"{expression} in {self.environment.var_to_range.get(expression)}"
        yield f"{dict(self.environment.replacements)}"
        yield from (str(guard.expr) for guard in self.environment.guards)

    def guards(self) -> str | None:
        """Return the conditions that hold now, as one expression."""
        symbols = list(self.symbols)
        pruned = self.environment.get_pruned_guards(symbols)
        text: str | None = self.environment.produce_guards_expression(placeholders=symbols, guards=pruned)
        return text

    def fit(self, guards: str | None) -> bool:
        """Return True if this call's sizes meet the conditions, which then become guards of this call."""
        if not guards:
            return True
        if not self.environment.evaluate_guards_expression(guards, [s.node.hint for s in self.symbols]):
            return False
        return bool(self.environment.evaluate_guards_expression(guards, list(self.symbols)))


def sizes_of(values: Sequence[Any], fakes: Sequence[Any], environment: Any) -> CallSizes | None:
    """Return the call's symbolic sizes; None where all sizes are known.

    Raises:
        NoFingerprintError: a symbol that is not an input by itself, or that depends on data.
    """
    if environment is None:
        return None
    if any(isinstance(value, (torch.SymFloat, torch.SymBool)) for value in values):
        raise NoFingerprintError("a number that is not a size")
    symbols = tuple(value for value in values if isinstance(value, torch.SymInt))
    if unbacked_symbols(environment):
        raise NoFingerprintError("data-dependent sizes")
    carried = {value.node.expr for value in symbols}
    used = {symbol for fake in fakes for symbol in _free(fake)}
    if used - carried or any(not expression.is_symbol for expression in carried):
        raise NoFingerprintError("a symbolic size that is not the size of an input")
    return CallSizes(environment, symbols) if symbols else None


def _free(fake: Any) -> set[Any]:
    if not isinstance(fake, torch.Tensor):
        return set()
    sizes = (*fake.shape, *fake.stride(), fake.storage_offset())
    return {
        symbol for size in sizes if isinstance(size, torch.SymInt) for symbol in size.node.expr.free_symbols
    }
