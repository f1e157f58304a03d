"""Arguments and results that are nested, and arguments that are no tensors."""

from collections import OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils import _pytree as pytree

from tests.programs.program import Cases, leaf, plain

cases = Cases("containers")


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@cases(lambda: ({"a": leaf(3), "b": [leaf(3), plain(3)]},))
def nested_argument(batch: dict[str, Any]) -> Tensor:
    return batch["a"] * batch["b"][0] + batch["b"][1]


@cases(lambda: (leaf(3),), "dynamic")
def dictionary(x: Tensor) -> dict[str, Any]:
    return {"out": x * 2, "parts": [x + 1, (x.sum(), None)], "size": x.shape[0]}


@cases(lambda: (leaf(3),))
def list_of_one(x: Tensor) -> list[Tensor]:
    return [x * 2]


@cases(lambda: (leaf(3),))
def tuple_of_one(x: Tensor) -> tuple[Tensor]:
    return (x * 2,)


@cases(lambda: (leaf(3),))
def empty_tuple(x: Tensor) -> tuple[()]:
    return ()


@cases(lambda: (leaf(3),))
def nothing(x: Tensor) -> None:
    return None


@cases(lambda: (plain(3),))
def nothing_computed(x: Tensor) -> tuple[None, int]:
    return None, 3


@cases(lambda: (Pair(leaf(3), plain(3)),))
def named_tuple(pair: Pair) -> Pair:
    return Pair(pair.first * pair.second, pair.second + 1)


@cases(lambda: (OrderedDict(b=leaf(3), a=leaf(3)),))
def ordered_dictionary(values: OrderedDict[str, Tensor]) -> OrderedDict[str, Tensor]:
    return OrderedDict((key, value * 2) for key, value in values.items())


@cases(lambda: ({"x": leaf(3)},))
def dictionary_filled_inside(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    batch["y"] = batch["x"] * 2
    return batch


@cases(lambda: ([leaf(3), leaf(3)],), unsupported="side-effect")
def list_grows_inside(values: list[Tensor]) -> Tensor:
    values.append(values[0] * 2)
    return torch.stack(values).sum(0)


@cases(lambda: (leaf(3), 2, 1.5, True, None, "sum", torch.float64))
def other_arguments(
    x: Tensor, count: int, factor: float, flag: bool, nothing: None, how: str, dtype: torch.dtype
) -> Tensor:
    out = x.repeat(count) * factor if flag and nothing is None else x
    return getattr(out.to(dtype), how)()


@cases(lambda: (leaf(3), torch.device("cpu"), slice(0, 2)))
def device_and_slice(x: Tensor, device: torch.device, part: slice) -> Tensor:
    return x.to(device)[part] * 2


@cases(lambda: (leaf(3, 4),), "dynamic")
def sizes_among_outputs(x: Tensor) -> tuple[int, Tensor, int]:
    return x.shape[0], x * 2, x.shape[0] * x.shape[1]


@cases(lambda: (leaf(3, 4), plain(2, 4)), "dynamic")
def expanded_to_sizes(x: Tensor, y: Tensor) -> Tensor:
    return x.sum(0).expand(y.shape) * y


@cases(lambda: (leaf(4, 6), 2), "dynamic")
def view_by_sizes(x: Tensor, parts: int) -> Tensor:
    return (x * 2).view(x.shape[0], parts, -1).transpose(0, 1).reshape(parts, -1)


@cases(lambda: (leaf(6, 4), plain(6, 4), 3), "dynamic", "dynamo", "inductor")
def cache_written_at_a_position(x: Tensor, cache: Tensor, position: int) -> tuple[Tensor, int]:
    cache[position] = x[position].detach()
    seen = cache[: position + 1]
    return (x[:1] @ seen.t()).softmax(1) / position, position + 1


@cases(lambda: ({"x": leaf(6, 4), "count": 3},), "dynamic", "dynamo", "inductor")
def number_in_a_container(batch: dict[str, Any]) -> dict[str, Any]:
    x, count = batch["x"], batch["count"]
    padded = functional.pad(x, (0, count)) if isinstance(count, int) else x
    return {"x": padded * count, "ramp": torch.arange(count, dtype=x.dtype), "half": count // 2}


@cases(lambda: (leaf(6, 4), plain(3)), "dynamic", "dynamo", "inductor")
def padded_by_a_size(x: Tensor, y: Tensor) -> Tensor:
    return functional.pad(x, (0, y.shape[0])) * y.shape[0]


@cases(lambda: (leaf(6, 4), 3), "dynamic", "dynamo", "inductor")
def tensors_of_numbers(x: Tensor, n: int) -> tuple[Tensor, ...]:
    rows = x.index_select(0, torch.tensor([n, n - 1]))
    scale = torch.tensor(x.shape[0] * 0.5)
    return rows * scale, x.new_tensor([[n, 2.5], [1, x.shape[1]]]), torch.tensor([n > 2, True])


@cases(lambda: (leaf(3), [], {}, ()))
def empty_containers(x: Tensor, xs: list[Tensor], named: dict[str, Tensor], rest: tuple[()]) -> Tensor:
    return x * (2 + len(xs) + len(named) + len(rest))


@cases(lambda: (leaf(3), leaf(3), leaf(3)))
def variable_arguments(*xs: Tensor) -> Tensor:
    return xs[0] * xs[1] + xs[2]


@cases(lambda: (leaf(3),))
def default_arguments(x: Tensor, factor: float = 2.0, bias: Tensor | None = None) -> Tensor:
    return x * factor if bias is None else x + bias


@cases(lambda: (leaf(3),))
def sizes_object(x: Tensor) -> tuple[torch.Size, Tensor]:
    return x.shape, x * 2


@cases(lambda: (leaf(3),))
def same_container_twice(x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    out = [x * 2]
    return out, out


@cases(lambda: ({"x": leaf(3), "rest": [plain(3)]},), unsupported="new-object-side-effect")
def nested_containers_filled_inside(batch: dict[str, Any]) -> Tensor:
    batch["rest"].append(batch["x"] * 2)
    batch["new"] = {"twice": batch["x"].view(-1), "count": 3}
    return batch["rest"][1].sum()


@cases(lambda: ({"x": leaf(3), "rest": [plain(3), leaf(3)]},))
def items_of_nested_containers_set_inside(batch: dict[str, Any]) -> Tensor:
    batch["rest"][0] = batch["x"] * 2
    batch["new"] = batch["x"].view(-1)
    batch["count"] = 3
    return batch["rest"][0].sum()


@cases(lambda: ([leaf(3), leaf(3), leaf(3)],))
def list_reordered_inside(values: list[Tensor]) -> Tensor:
    values.insert(0, values.pop())
    return values[0] * 2


@cases(lambda: ({"x": leaf(3), "y": leaf(3)},), unsupported="side-effect")
def dictionary_emptied_inside(batch: dict[str, Tensor]) -> Tensor:
    taken = batch.pop("y")
    batch["x"] = taken * 2
    return batch["x"] + taken


class Unnamed:
    """A class that is registered as most are: without names for its parts."""

    def __init__(self, first: Tensor, second: Any) -> None:
        self.first = first
        self.second = second


pytree.register_pytree_node(
    Unnamed, lambda one: ([one.first, one.second], None), lambda parts, _: Unnamed(*parts)
)


@cases(lambda: (Unnamed(leaf(3), [plain(3)]),), "dynamo")
def class_registered_without_names(given: Unnamed) -> Unnamed:
    return Unnamed(given.first * given.second[0], (given.first.sin(), 3))


class Outputs(OrderedDict[str, Any]):
    """A class whose context names its parts, as those of model libraries do."""


pytree.register_pytree_node(
    Outputs,
    lambda one: (list(one.values()), list(one.keys())),
    lambda parts, names: Outputs(zip(names, parts, strict=True)),
)


@cases(lambda: (leaf(3), {}))
def class_that_names_its_parts_in_a_dict(x: Tensor, kept: dict[str, Any]) -> Outputs:
    kept["all"] = x * 3
    return Outputs(loss=x.sum(), hidden=(x * 2, None))


@cases(lambda: (leaf(3, 4),), "dynamic")
def sizes_beside_a_named_tuple(x: Tensor) -> tuple[Any, ...]:
    return Pair(x * 2, x + 1), x.size(), [Pair(x.cos(), x.sin()), x.shape[1:]]


@cases(lambda: (leaf(3, 4),), "dynamic")
def sizes_in_containers_of_their_own(x: Tensor) -> Any:
    found = defaultdict(list, sizes=[x.shape, x * 2])
    return OrderedDict(a=x.shape, b=x * 2), found, deque([x.size(), x + 1], maxlen=4)


@cases(lambda: (leaf(3, 4),), "dynamic")
def sizes_beside_what_torch_gives_by_name(x: Tensor) -> tuple[Any, ...]:
    return torch.max(x, 0), x.shape, torch.sort(x), {"sizes": x.shape}


@cases(lambda: (leaf(3, 4),), "dynamic", "inductor")
def slices_and_ranges(x: Tensor) -> tuple[Any, ...]:
    return slice(0, 2), [slice(1, None)], range(3), x * 2
