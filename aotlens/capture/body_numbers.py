"""Numbers from outside in the functions of a higher-order operator: sizes, and what `item()` gave.

Invariant: a function gets each as an operand behind the others, and all functions of a call get the same; a
floating one, which no operand may be, comes in a tensor of one element.
"""

from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.operators import aten
from aotlens.capture.storage import Storage
from aotlens.capture.tape import Tape
from aotlens.ir.origin import NOWHERE, Origin
from aotlens.ir.program import Node, Program, ProgramInput
from aotlens.ir.slots import UserInput


class OuterNumbers:
    """The symbols that the functions of one call read, in the order of their first use."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._operands: dict[Any, Any] = {}
        """By symbol, what the operator is given for it."""
        self._own: dict[int, dict[Any, ProgramInput]] = {}
        """By function's recording, then by program: its inputs by symbol."""

    @property
    def operands(self) -> tuple[Any, ...]:
        return tuple(self._operands.values())

    def lend_to(self, inner: Tape, label: str) -> None:
        """Make symbols that the recording of a function lacks inputs of it."""
        own: dict[Any, ProgramInput] = {}
        self._own[id(inner)] = own

        def from_outside(symbol: Any) -> Node:
            number = self._tape.symbols.of_symbol(symbol).val
            if symbol not in self._operands:
                self._operands[symbol] = self._operand(number)
            own[symbol] = _input(inner, label, self._operands[symbol])
            if isinstance(number, torch.SymInt):
                return own[symbol].node
            return inner.add_node(aten._local_scalar_dense.default, (own[symbol].node,), {}, number)

        inner.symbols.from_outside = from_outside

    def inputs_of(self, inner: Tape) -> tuple[ProgramInput, ...]:
        return tuple(self._own[id(inner)].values())

    def note(self, inner: Tape, program: Program) -> None:
        """Say which program a recording has become."""
        self._own[id(program)] = self._own.pop(id(inner))

    def completed(self, program: Program) -> Program:
        """The program with inputs for what the other functions read too."""
        own = self._own[id(program)]
        first = program.inputs[: len(program.inputs) - len(own)]
        more = (
            own.get(symbol) or _input(self._tape, program.name, operand)
            for symbol, operand in self._operands.items()
        )
        return replace(program, inputs=(*first, *more))

    def _operand(self, number: Any) -> Any:
        if isinstance(number, torch.SymInt):
            return number
        tape, func, kind = self._tape, aten.scalar_tensor.default, {"dtype": torch.float64}
        node = tape.emit(func, tape.symbols.value(number), **kind)
        operand = node.val.detach()
        tape.track(operand, Storage(node, operand))
        if not tape.in_backward:
            tape.note_call((func, (number,), kind, operand, tape.origin))
        return operand


def _input(tape: Tape, label: str, operand: Any) -> ProgramInput:
    name = tape.name(f"{label}_number")
    value = operand.detach() if isinstance(operand, torch.Tensor) else operand
    return ProgramInput(Node(name, None, (), {}, value, Origin(NOWHERE, "")), UserInput(name, 0))
