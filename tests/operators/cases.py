"""The cases: one operator or module of torch's databases, under one data type and one kind of sizes."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as databases
from torch.testing._internal.common_modules import module_db

op_db = databases.op_db
DTYPES = (torch.float32, torch.float64)
UNINITIALISED = "its result is uninitialised memory"

NOT_COMPARABLE = {
    **dict.fromkeys(("empty", "empty_like", "empty_permuted", "empty_strided"), UNINITIALISED),
    **dict.fromkeys(("new_empty", "new_empty_strided"), UNINITIALISED),
    "linalg_eig": "eager refuses the backward for some values, which a graph cannot see",
}
"""Operators that cannot be equal, each with its reason."""


def unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The database seeds inside of random operators, which no compiled call repeats; we seed around."""
    return op(*args, **kwargs)


vars(databases)["wrapper_set_seed"] = unseeded


@dataclass(frozen=True, slots=True)
class Sample:
    """One callable with arguments, and the same with other values of the same kind."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    other: tuple[tuple[Any, ...], dict[str, Any]] | None
    """None where the database makes no second set of these sizes."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    kind: str
    """`op` or `module`."""
    name: str
    dtype: torch.dtype
    dynamic: bool
    variant: str
    """Empty for an operator; `train`, `eval`, and with `nested` the parameters come in nested dicts."""
    samples: Callable[[], Iterator[Sample]]

    @property
    def key(self) -> str:
        sizes = "symbolic" if self.dynamic else "static"
        return " ".join(
            filter(None, (self.kind, self.name, self.variant, str(self.dtype).removeprefix("torch."), sizes))
        )


def all_cases() -> Iterator[Case]:
    """Every case, those of float32 and static sizes first."""
    for dtype, dynamic in itertools.product(DTYPES, (False, True)):
        for op in op_db:
            if dtype in op.dtypes:
                yield Case("op", op.formatted_name, dtype, dynamic, "", partial(operator_samples, op, dtype))
        for info in module_db:
            if not issubclass(info.module_cls, torch.nn.modules.lazy.LazyModuleMixin):
                yield from module_cases(info, dtype, dynamic)


def module_cases(info: Any, dtype: torch.dtype, dynamic: bool) -> Iterator[Case]:
    for training in (True, False):
        variant = "train" if training else "eval"
        made = partial(module_samples, info, dtype, training)
        yield Case("module", info.name, dtype, dynamic, variant, made)
        if dtype is torch.float32 and not dynamic:
            yield Case(
                "module", info.name, dtype, dynamic, f"{variant} nested", partial(nested_samples, made)
            )


def operator_samples(op: Any, dtype: torch.dtype) -> Iterator[Sample]:
    """The database's samples, each with the same one of another seed."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    first, second = (_operator_inputs(op, dtype, seed) for seed in (0, 1))
    for (args, kwargs), other in zip(first, second, strict=False):
        yield Sample(call, args, kwargs, other if _alike((args, kwargs), other) else None)


def _operator_inputs(op: Any, dtype: torch.dtype, seed: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
    torch.manual_seed(seed)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd):
        state = torch.get_rng_state()
        yield (sample.input, *sample.args), sample.kwargs
        torch.set_rng_state(state)


def module_samples(info: Any, dtype: torch.dtype, training: bool) -> Iterator[Sample]:
    """The module of each of the database's inputs."""
    first, second = (_module_inputs(info, dtype, training, seed) for seed in (0, 1))
    for given, other in zip(first, second, strict=False):
        if given.forward_input is None:
            continue
        construct = given.constructor_input
        module = info.module_cls(*construct.args, **construct.kwargs).to(dtype).train(training)
        called = tuple(given.forward_input.args), given.forward_input.kwargs
        again = tuple(other.forward_input.args), other.forward_input.kwargs
        yield Sample(module, *called, again if _alike(called, again) else None)


def _module_inputs(info: Any, dtype: torch.dtype, training: bool, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    return list(
        info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    )


def nested_samples(made: Callable[[], Iterator[Sample]]) -> Iterator[Sample]:
    """Each module as a function of its parameters and buffers, which come in nested dicts."""
    for sample in made():
        module: Any = sample.fn
        owned = {**dict(module.named_parameters()), **dict(module.named_buffers())}

        def call(owned: dict[str, Any], *args: Any, module: Any = module, **kwargs: Any) -> Any:
            return torch.func.functional_call(module, dict(_flat(owned)), args, kwargs)

        yield Sample(call, (_nested(owned), *sample.args), sample.kwargs, None)


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """`{"a.b": x}` as `{"a": {"b": x}}`."""
    result: dict[str, Any] = {}
    for name, tensor in flat.items():
        *path, last = name.split(".")
        place = result
        for part in path:
            place = place.setdefault(part, {})
        place[last] = tensor
    return result


def _flat(nested: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in nested.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _alike(left: Any, right: Any) -> bool:
    """Whether two sets of arguments differ in values alone."""
    return _kind(left) == _kind(right)


def _kind(arguments: Any) -> list[Any]:
    leaves, spec = torch.utils._pytree.tree_flatten(arguments)
    found: list[Any] = [str(spec)]
    for leaf in leaves:
        if isinstance(leaf, torch.nn.Module):
            found.append(id(leaf))  # a call is compiled for this very module
        elif not isinstance(leaf, torch.Tensor):
            found.append(repr(leaf))
        elif leaf.layout is torch.strided:
            found.append((leaf.shape, leaf.stride(), leaf.dtype, leaf.requires_grad))
        else:
            found.append((leaf.layout, leaf.shape))
    return found
