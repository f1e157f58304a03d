"""Gradients of `cond`, `map` and `while_loop` through subgraphs that call random operators.

The random values are computed first and handed to the subgraphs as operands, so that the backward sees the
same values.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.hop.loop_numbers import carries_scalars, record_scalar_loop
from aotlens.capture.hop.operands import OPERANDS_BY_OPERATOR
from aotlens.capture.hop.subgraphs import runner_of
from aotlens.capture.operators import QUERIES, Kind, Operator, describe
from aotlens.ir.program import is_higher_order
from aotlens.torch_api.fake.tensors import detect_fake_mode, ignore_unbacked_symbols
from aotlens.torch_api.hop import has_ordered_effect, without_empty_mutation_info
from aotlens.torch_api.modes import TorchDispatchMode, current_mode, without_modes, without_python_rules
from aotlens.torch_api.operators import call_composite, pytree
from aotlens.unsupported import unsupported

SplitCall = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Splits a nested call into one that only computes random values and one that reads them."""


@dataclass(frozen=True, slots=True)
class RandomValue:
    """One random tensor that a function computes."""

    like: Any
    """A fake tensor with its sizes, strides, dtype and device."""
    is_written: bool
    """Whether the function writes to it afterwards."""

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for values that can share an operand."""
        sizes = (tuple(map(str, self.like.shape)), tuple(map(str, self.like.stride())))
        return (*sizes, self.like.dtype, self.like.device)

    def zeros(self) -> Any:
        """Return a placeholder for a branch that computes no such value."""
        like = self.like
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).zero_()

    def for_subgraph(self, value: Any) -> Any:
        """Return the value for the function: a copy if it writes to it."""
        return value.clone() if self.is_written else value.detach()


class RandomSubgraph:
    """A function of one of the two calls."""

    def __init__(self, function: Callable[..., Any], value_count: int | None = None) -> None:
        self.function = function
        self.value_count = value_count
        """The number of random values that the call returns; None for the call that reads them."""

    def __call__(self, *operands: Any) -> Any:
        return self.function(*operands)


class RandomOpMode(TorchDispatchMode):
    """Passes each random operator, and each call that only computes random values, to `run_random_op`."""

    supports_higher_order_operators = True

    def __init__(self, split_call: SplitCall, recorder: Any) -> None:
        super().__init__()
        self._split_call = split_call
        self.recorder = recorder
        """The recorder of the function, or None."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in QUERIES:
            return func(*args, **kwargs)
        operator = describe(func)
        if is_higher_order(func):
            parts = [arg for arg in args if isinstance(arg, RandomSubgraph)]
            if not parts:
                with self:
                    result = self._split_call(func, args, kwargs)
                if result is not NotImplemented:
                    return result
            if any(part.value_count is not None for part in parts):
                return self.run_random_op(func, operator, args, kwargs)
        if operator.kind is Kind.COMPOSITE:
            with self:
                return call_composite(func, args, kwargs)
        self.on_operator(func, _targets(operator, args, kwargs))
        if operator.random:
            return self.run_random_op(func, operator, args, kwargs)
        return func(*args, **kwargs)

    def on_operator(self, func: Any, targets: tuple[Any, ...]) -> None:
        """Called before an operator runs, with the tensors that it writes to."""

    def run_random_op(
        self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a random operator, or replace it."""
        result = func(*args, **kwargs)
        targets = _targets(operator, args, kwargs)
        results = () if operator.returned else pytree.tree_leaves(result)
        for random_tensor in (*targets, *(value for value in results if isinstance(value, torch.Tensor))):
            self.on_random_value(random_tensor)
        return result

    def on_random_value(self, value: Any) -> None:
        """Called with each new random tensor."""


def _targets(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments that an operator writes to."""
    return tuple(
        kwargs[position] if isinstance(position, str) else args[position] for position in operator.written
    )


def has_only_effect(func: Any) -> bool:
    """Return True if an operator has an effect and returns nothing, as a print."""
    gives_nothing = func.name() == "print" if is_higher_order(func) else not func._schema.returns
    return gives_nothing and has_ordered_effect(func)


class FindRandomOps(RandomOpMode):
    """Finds a function's random values in a trial run on fake tensors."""

    def __init__(self, split_call: SplitCall) -> None:
        super().__init__(split_call, None)
        self.has_effect = False
        self._values_seen: list[Any] = []
        self._written: set[int] = set()

    def on_operator(self, func: Any, targets: tuple[Any, ...]) -> None:
        self.has_effect |= has_ordered_effect(func) and not has_only_effect(func)
        for target in targets:  # by storage: a factory function returns another object to its caller
            storage = target.untyped_storage()._cdata
            self._written |= {
                index
                for index, value in enumerate(self._values_seen)
                if value.untyped_storage()._cdata == storage
            }

    def on_random_value(self, value: Any) -> None:
        self._values_seen.append(value.detach())

    def random_values(self) -> tuple[RandomValue, ...]:
        return tuple(
            RandomValue(like, index in self._written) for index, like in enumerate(self._values_seen)
        )


class CollectRandomValues(RandomOpMode):
    """Collects a function's random values."""

    def __init__(self, split_call: SplitCall, recorder: Any, random_values: Sequence[RandomValue]) -> None:
        super().__init__(split_call, recorder)
        self._random_values = random_values
        self.values: list[Any] = []

    def on_random_value(self, value: Any) -> None:
        self.values.append(self._random_values[len(self.values)].for_subgraph(value))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if has_only_effect(func):  # the call that reads the values runs it
            return None
        return super().__torch_dispatch__(func, types, args, kwargs)


class ReplayRandomValues(RandomOpMode):
    """Replaces a function's random operators by their earlier values."""

    def __init__(
        self,
        split_call: SplitCall,
        recorder: Any,
        random_values: Sequence[RandomValue],
        values: Sequence[Any],
    ) -> None:
        super().__init__(split_call, recorder)
        self._values: Iterator[tuple[RandomValue, Any]] = zip(random_values, values, strict=True)

    def run_random_op(
        self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        targets = _targets(operator, args, kwargs)
        for target in targets:
            target.copy_(self._next())
        if operator.returned:
            return operator.returned_value(targets)
        if is_higher_order(func):
            count = next(
                arg.value_count
                for arg in args
                if isinstance(arg, RandomSubgraph) and arg.value_count is not None
            )
            return tuple(self._next() for _ in range(count))
        returned = [self._next() for _ in func._schema.returns]
        return returned[0] if len(returned) == 1 else tuple(returned)

    def _next(self) -> Any:
        random_value, value = next(self._values)
        return random_value.for_subgraph(value)


STACKING = torch.ops.higher_order.while_loop_stack_output
"""A loop that returns the results of each step."""


@dataclass(frozen=True, slots=True)
class Body:
    """One function of a call."""

    function: Any
    random_values: tuple[RandomValue, ...]

    def run_and_collect(self, operands: Sequence[Any]) -> tuple[list[Any], Any]:
        """Return its random values, and its result."""
        collecting = CollectRandomValues(_split_into_two, _recorder(), self.random_values)
        return collecting.values, self._run(collecting, operands)

    def run_with(self, operands: Sequence[Any], values: Sequence[Any]) -> Any:
        """Return its result with these random values."""
        return self._run(
            ReplayRandomValues(_split_into_two, _recorder(), self.random_values, values), operands
        )

    def _run(self, mode: RandomOpMode, operands: Sequence[Any]) -> Any:
        known = mode.recorder is not None
        run = runner_of(mode.recorder, self.function) if known else self.function
        with without_python_rules(), mode:
            return run(*operands)


def _recorder() -> Any:
    """Return the recorder that sees the next operator, or None."""
    mode = current_mode()
    return mode if isinstance(mode, Recording) else getattr(mode, "recorder", None)


def record_random_values_first(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call with its random values first; return NotImplemented if it has none.

    Called above autograd.
    """
    if not isinstance(current_mode(), (Recording, CollectRandomValues, ReplayRandomValues)):
        return NotImplemented
    if carries_scalars(func, args):
        return record_scalar_loop(func, args, kwargs)
    if not torch.is_grad_enabled():
        return NotImplemented
    tensors = (leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor))
    if not any(tensor.requires_grad for tensor in tensors):
        return NotImplemented
    return _split_into_two(func, args, kwargs)


def _split_into_two(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = without_empty_mutation_info(func.name(), args, kwargs)
    if kwargs or func.name() not in RANDOM_CALLS or any(isinstance(arg, RandomSubgraph) for arg in args):
        return NotImplemented  # the functions write to operands, which is handled where the call is recorded
    bodies = _run_once(func, args)
    return (
        RANDOM_CALLS[func.name()](func, args, bodies)
        if any(body.random_values for body in bodies)
        else NotImplemented
    )


def _run_once(func: Any, args: tuple[Any, ...]) -> list[Body]:
    """Return each function of a call with its random values, from a trial run on fake tensors."""
    fake_mode = detect_fake_mode(pytree.tree_leaves(args))
    bodies: list[Body] = []
    if fake_mode is None:
        return bodies
    with without_modes(), fake_mode, torch.no_grad(), ignore_unbacked_symbols(fake_mode):
        for _, function, inputs in OPERANDS_BY_OPERATOR[func.name()](*args):
            noting = FindRandomOps(_split_into_two)
            with without_python_rules(), noting:
                function(*(value.detach() if isinstance(value, torch.Tensor) else value for value in inputs))
            bodies.append(Body(function, noting.random_values()))
            if noting.has_effect and noting.random_values():
                raise unsupported(
                    "random-op-beside-effect", getattr(_recorder(), "span", None), operator=func.name()
                )
    return bodies


def _cond(func: Any, args: tuple[Any, ...], bodies: Sequence[Body]) -> Any:
    predicate, _, _, operands = args
    count = len(operands)
    random_values, own = _shared_values(bodies)

    def first_call(body: Body, own: list[int]) -> RandomSubgraph:
        def compute_random(*operands: Any) -> tuple[Any, ...]:
            by_index = dict(zip(own, body.run_and_collect(operands)[0], strict=True))
            return tuple(
                by_index[index] if index in by_index else random_value.zeros()
                for index, random_value in enumerate(random_values)
            )

        return RandomSubgraph(compute_random, len(random_values))

    def second_call(body: Body, own: list[int]) -> RandomSubgraph:
        return RandomSubgraph(
            lambda *values: body.run_with(values[:count], [values[count + index] for index in own])
        )

    with torch.no_grad():
        random_tensors = func(predicate, *map(first_call, bodies, own), operands)
    return func(predicate, *map(second_call, bodies, own), (*operands, *random_tensors))


def _shared_values(bodies: Sequence[Body]) -> tuple[list[RandomValue], list[list[int]]]:
    """Return a list of random values that all functions share, and each function's indices in it."""
    random_values: list[RandomValue] = []
    indices: list[list[int]] = []
    for body in bodies:
        own: list[int] = []
        for body_value in body.random_values:
            fitting = (
                index
                for index, random_value in enumerate(random_values)
                if index not in own and random_value.kind == body_value.kind
            )
            own.append(next(fitting, len(random_values)))
            random_values += [body_value] if own[-1] == len(random_values) else []
        indices.append(own)
    return random_values, indices


def _map(func: Any, args: tuple[Any, ...], bodies: Sequence[Body]) -> Any:
    _, mapped, more = args
    (body,) = bodies
    start, stop = len(mapped), len(mapped) + len(body.random_values)
    with torch.no_grad():
        random_tensors = func(
            RandomSubgraph(lambda *values: tuple(body.run_and_collect(values)[0]), len(body.random_values)),
            mapped,
            more,
        )
    second_call = RandomSubgraph(
        lambda *values: body.run_with((*values[:start], *values[stop:]), values[start:stop])
    )
    return func(second_call, (*mapped, *random_tensors), more)


def _while_loop(func: Any, args: tuple[Any, ...], bodies: Sequence[Body]) -> Any:
    """Run the loop for its random values and step count, then as many steps with these values."""
    condition, _, carried, more = args
    body, count = bodies[1], len(carried)
    zeros = [random_value.zeros() for random_value in body.random_values]
    rest = count + 1 + len(zeros)

    def compute_random(*values: Any) -> tuple[Any, ...]:
        random_tensors, result = body.run_and_collect((*values[:count], *values[rest:]))
        return (*result, values[count] + 1, *random_tensors)

    before = RandomSubgraph(lambda *values: condition(*values[:count], *values[rest:]))
    step = torch.zeros((), dtype=torch.int64)
    with torch.no_grad():
        states = STACKING(before, RandomSubgraph(compute_random, rest), (*carried, step, *zeros), more)
        total, random_tensors = states[count][-1].clone(), states[count + 1 :]

    def compute(*values: Any) -> tuple[Any, ...]:
        row = [
            stacked.index_select(0, values[count].reshape(1).to(stacked.device)).squeeze(0)
            for stacked in values[count + 2 : rest + 1]
        ]
        return (*body.run_with((*values[:count], *values[rest + 1 :]), row), values[count] + 1)

    has_more = RandomSubgraph(lambda *values: values[count] < values[count + 1])
    results = func(
        has_more, RandomSubgraph(compute), (*carried, torch.zeros_like(step)), (total, *random_tensors, *more)
    )
    return results[:count]


RANDOM_CALLS: dict[str, Callable[..., Any]] = {"cond": _cond, "map_impl": _map, "while_loop": _while_loop}
"""By operator: how to split a call in two."""
