"""`cond`, `map` and `while_loop` with a gradient through functions that draw random numbers.

Torch's gradient of these operators runs their functions again, which would draw again.  Here a first call of
the operator only draws, and a second one gives what was drawn to the functions as operands.

Invariant: a function that a gradient may run again draws nothing, and all draws come in eager's order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.bodies import runner_of
from aotlens.capture.body_draws import Collecting, Draw, Drawing, Giving, Noting, Part
from aotlens.capture.body_inputs import BODIES
from aotlens.capture.loop_numbers import carries_numbers, loop_over_tensors
from aotlens.capture.tape import Tape
from aotlens.errors import UnsupportedError
from aotlens.torch_api.fake import detect_fake_mode, ignore_unbacked_symbols
from aotlens.torch_api.hop import without_empty_mutation_info
from aotlens.torch_api.modes import current_mode, without_modes, without_python_rules
from aotlens.torch_api.operators import pytree

STACKING = torch.ops.higher_order.while_loop_stack_output
"""A loop that returns what each of its steps gave."""


@dataclass(frozen=True, slots=True)
class Body:
    """One function of a call."""

    function: Any
    draws: tuple[Draw, ...]

    def drawn(self, operands: Sequence[Any]) -> tuple[list[Any], Any]:
        """What it draws, and its result."""
        collecting = Collecting(_in_two_calls, _recorder(), self.draws)
        return collecting.drawn, self._run(collecting, operands)

    def given(self, operands: Sequence[Any], drawn: Sequence[Any]) -> Any:
        """Its result where it drew these."""
        return self._run(Giving(_in_two_calls, _recorder(), self.draws, drawn), operands)

    def _run(self, drawing: Drawing, operands: Sequence[Any]) -> Any:
        known = drawing.recorder is not None
        run = runner_of(drawing.recorder, self.function) if known else self.function
        with without_python_rules(), drawing:
            return run(*operands)


def _recorder() -> Any:
    """The recorder that sees the next operator, or None."""
    mode = current_mode()
    return mode if isinstance(mode, Tape) else getattr(mode, "recorder", None)


def draw_first(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of a call that draws before it computes; NotImplemented for one that draws nothing.

    Ask above autograd.
    """
    if not isinstance(current_mode(), (Tape, Collecting, Giving)):
        return NotImplemented
    if carries_numbers(func, args):
        return loop_over_tensors(func, args, kwargs)
    if not torch.is_grad_enabled():
        return NotImplemented
    tensors = (leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor))
    if not any(tensor.requires_grad for tensor in tensors):
        return NotImplemented
    return _in_two_calls(func, args, kwargs)


def _in_two_calls(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = without_empty_mutation_info(func.name(), args, kwargs)
    if kwargs or func.name() not in CALLS or any(isinstance(arg, Part) for arg in args):
        return NotImplemented  # what its functions write to, which is refused where it is recorded
    bodies = _run_once(func, args)
    return CALLS[func.name()](func, args, bodies) if any(body.draws for body in bodies) else NotImplemented


def _run_once(func: Any, args: tuple[Any, ...]) -> list[Body]:
    """Each function of a call with what it draws, from a run on stand-ins."""
    fake_mode = detect_fake_mode(pytree.tree_leaves(args))
    found: list[Body] = []
    if fake_mode is None:
        return found
    with without_modes(), fake_mode, torch.no_grad(), ignore_unbacked_symbols(fake_mode):
        for _, function, inputs in BODIES[func.name()](*args):
            noting = Noting(_in_two_calls)
            with without_python_rules(), noting:
                function(*(value.detach() if isinstance(value, torch.Tensor) else value for value in inputs))
            found.append(Body(function, noting.draws()))
            if noting.has_effect and noting.draws():
                raise UnsupportedError(
                    "random numbers beside an effect that gives a value, inside a function of "
                    f"`{func.name()}`, with a gradient",
                    getattr(_recorder(), "span", None),
                    "keep the effect outside of the function",
                )
    return found


def _cond(func: Any, args: tuple[Any, ...], bodies: Sequence[Body]) -> Any:
    predicate, _, _, operands = args
    count = len(operands)
    places, own = _shared_places(bodies)

    def drawing(body: Body, own: list[int]) -> Part:
        def draw(*operands: Any) -> tuple[Any, ...]:
            drawn = dict(zip(own, body.drawn(operands)[0], strict=True))
            return tuple(drawn[at] if at in drawn else place.zeros() for at, place in enumerate(places))

        return Part(draw, len(places))

    def computing(body: Body, own: list[int]) -> Part:
        return Part(lambda *values: body.given(values[:count], [values[count + at] for at in own]))

    with torch.no_grad():
        drawn = func(predicate, *map(drawing, bodies, own), operands)
    return func(predicate, *map(computing, bodies, own), (*operands, *drawn))


def _shared_places(bodies: Sequence[Body]) -> tuple[list[Draw], list[list[int]]]:
    """One list of draws for all functions, and the places in it of each function's own."""
    places: list[Draw] = []
    found: list[list[int]] = []
    for body in bodies:
        own: list[int] = []
        for draw in body.draws:
            fitting = (at for at, place in enumerate(places) if at not in own and place.kind == draw.kind)
            own.append(next(fitting, len(places)))
            places += [draw] if own[-1] == len(places) else []
        found.append(own)
    return places, found


def _map(func: Any, args: tuple[Any, ...], bodies: Sequence[Body]) -> Any:
    _, mapped, more = args
    (body,) = bodies
    start, stop = len(mapped), len(mapped) + len(body.draws)
    with torch.no_grad():
        drawn = func(Part(lambda *values: tuple(body.drawn(values)[0]), len(body.draws)), mapped, more)
    computing = Part(lambda *values: body.given((*values[:start], *values[stop:]), values[start:stop]))
    return func(computing, (*mapped, *drawn), more)


def _while_loop(func: Any, args: tuple[Any, ...], bodies: Sequence[Body]) -> Any:
    """The loop for its draws and the number of its steps; then as many steps, each with its draws."""
    condition, _, carried, more = args
    body, count = bodies[1], len(carried)
    noughts = [draw.zeros() for draw in body.draws]
    rest = count + 1 + len(noughts)

    def draw(*values: Any) -> tuple[Any, ...]:
        drawn, result = body.drawn((*values[:count], *values[rest:]))
        return (*result, values[count] + 1, *drawn)

    before = Part(lambda *values: condition(*values[:count], *values[rest:]))
    step = torch.zeros((), dtype=torch.int64)
    with torch.no_grad():
        states = STACKING(before, Part(draw, rest), (*carried, step, *noughts), more)
        total, drawn = states[count][-1].clone(), states[count + 1 :]

    def compute(*values: Any) -> tuple[Any, ...]:
        row = [
            given.index_select(0, values[count].reshape(1)).squeeze(0)
            for given in values[count + 2 : rest + 1]
        ]
        return (*body.given((*values[:count], *values[rest + 1 :]), row), values[count] + 1)

    has_more = Part(lambda *values: values[count] < values[count + 1])
    results = func(has_more, Part(compute), (*carried, torch.zeros_like(step)), (total, *drawn, *more))
    return results[:count]


CALLS: dict[str, Callable[..., Any]] = {"cond": _cond, "map_impl": _map, "while_loop": _while_loop}
"""How each operator makes the two calls."""
