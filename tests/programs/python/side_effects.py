"""What a function leaves where it reaches by itself: attributes, closures, and the containers in them."""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tests.programs.program import Cases, Fixed, leaf, plain, tape

cases = Cases("side_effects")

Step = Callable[..., Any]


class Pair(NamedTuple):
    keys: Tensor
    values: Tensor


@cases(lambda: (leaf(2, Fixed(3)),), "dynamic", unsupported="side-effect")
def results_kept_by_a_hook() -> nn.Module:
    kept: list[Tensor] = []
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, result: kept.append(result))
    return model


@cases(lambda: (leaf(2, Fixed(3)),))
def result_kept_on_a_layer_by_a_hook() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, result: setattr(module, "last", result))
    return model


@cases(lambda: (leaf(2, Fixed(3)),), "inductor")
def results_kept_by_name() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    features: dict[str, Tensor] = {}

    def keep(name: str) -> Step:
        def hook(module: nn.Module, args: Any, result: Tensor) -> None:
            features[name] = result

        return hook

    for name, layer in model.named_children():
        layer.register_forward_hook(keep(name))
    return model


@cases(lambda: (leaf(2, Fixed(3)),))
def results_kept_detached_by_layer() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    features: dict[nn.Module, Tensor] = {}

    def hook(module: nn.Module, args: Any, result: Tensor) -> None:
        features[module] = result.detach()

    for layer in model:
        layer.register_forward_hook(hook)
    return model


class Extractor(nn.Module):
    """As in many a tutorial: the hooks fill a dictionary that the forward returns."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.features = {"0": torch.empty(0), "1": torch.empty(0)}
        for name, layer in self.model.named_children():
            layer.register_forward_hook(self.keep(name))

    def keep(self, name: str) -> Step:
        def hook(module: nn.Module, args: Any, result: Tensor) -> None:
            self.features[name] = result

        return hook

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).sum()


cases(lambda: (leaf(2, Fixed(3)),))(Extractor)


class Last(nn.Module):
    """Keeps what it computed last, and reads it back, as some losses are written."""

    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.last = torch.zeros(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.linear(x).detach()
        return self.last.tanh() * x


cases(lambda: (leaf(2, Fixed(3)),))(Last)


class Average(nn.Module):
    """A running average in a plain attribute, which each call takes over from the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        self.mean = self.mean * 0.5 + x.detach()
        return self.mean * x


cases(lambda: (leaf(3),), unsupported="rebound-tensor-is-read")(Average)


class Kept(nn.Module):
    """One result by several names, a view of it, an argument, and what no gradient reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        empty: Any = None
        self.hidden = self.row = self.given = self.free = self.again = empty

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x)
        self.hidden = self.again = hidden
        self.row = hidden[0]
        self.given = x
        self.free = hidden.detach()
        return hidden


cases(lambda: (leaf(2, Fixed(3)),), "dynamic")(Kept)


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache: Any = None
        self.pair: Any = None
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.cache = (x.sin(), {"cos": x.cos()})
        self.pair = Pair(x * 2, x * 3)
        self.count = 3
        return x + 1


cases(lambda: (leaf(3),), "dynamic", unsupported="new-object-side-effect")(Cache)


class Numbers(nn.Module):
    """Values that are no tensors, under names that no code reads."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.size: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.count = 3
        self.size = x.shape[0]
        return x + 1


cases(lambda: (leaf(3),), "dynamic")(Numbers)


class FreshNames(nn.Module):
    """Attributes that were not there before, under names that no code has."""

    def forward(self, x: Tensor) -> Tensor:
        for at in range(2):
            setattr(self, f"part_{at}", x * at)
        self.first = x.sin()
        return x + 1


cases(lambda: (plain(3),))(FreshNames)


@cases(lambda: (leaf(3),), "dynamic")
def closure_variable_bound() -> Step:
    last = None

    def step(x: Tensor) -> Tensor:
        nonlocal last
        last = x * 2
        return x + 1

    return step


@cases(lambda: (leaf(3),), unsupported="side-effect")
def list_that_grows() -> Step:
    kept: list[Any] = []

    def step(x: Tensor) -> Tensor:
        kept.append(x * 2)
        kept.extend([x, (x.sin(), 3)])
        return x + 1

    return step


@cases(lambda: (leaf(3),), unsupported="side-effect")
def deque_of_the_last_two() -> Step:
    window: deque[Tensor] = deque(maxlen=2)

    def step(x: Tensor) -> Tensor:
        window.append(x * 2)
        return x + 1

    return step


@cases(lambda: (leaf(3),), unsupported="side-effect")
def containers_within_containers() -> Step:
    state: dict[str, Any] = {"keys": [], "layers": [{}, OrderedDict()]}

    def step(x: Tensor) -> Tensor:
        state["keys"].append(x * 2)
        state["layers"][0]["out"] = x.sin()
        state["layers"][1]["out"] = x.cos()
        return x + 1

    return step


@cases(lambda: (leaf(3),), unsupported="side-effect")
def list_as_a_default() -> Step:
    def step(x: Tensor, kept: list[Tensor] = []) -> Tensor:  # noqa: B006 (the case)
        kept.append(x * 2)
        return x + 1

    return step


@cases(lambda: (leaf(3),), unsupported="new-object-side-effect")
def new_containers_in_two_places() -> Step:
    state: dict[str, Any] = {"out": None, "again": None}

    def step(x: Tensor) -> Any:
        made = {"sin": x.sin(), "parts": [x.cos()]}
        state["out"] = state["again"] = made
        return made, made["parts"]

    return step


@dataclass(eq=False)
class State:
    parts: list[Tensor] = field(default_factory=list)
    key: Any = None


@cases(lambda: (leaf(3),), unsupported="side-effect")
def attributes_of_an_object_in_a_partial() -> Step:
    def step(state: State, x: Tensor) -> Tensor:
        state.key = x * 2
        state.parts.append(x.sin())
        return x + 1

    return partial(step, State())


class Counted:
    seen: Any = None

    def __call__(self, x: Tensor) -> Tensor:
        type(self).seen = x * 2
        return x + 1


@cases(lambda: (leaf(3),))
def class_attribute() -> Step:
    return Counted()


@cases(lambda: (leaf(3),), context=torch.no_grad)
def kept_without_gradient() -> Step:
    kept: dict[tuple[int, str], Tensor] = {}

    def step(x: Tensor) -> Tensor:
        kept[1, "sin"] = x.sin()
        kept[2, "view"] = x[1:]
        return x + 1

    return step


@cases(lambda: (leaf(3) * 2,))
def input_written_and_kept() -> Step:
    kept: dict[str, Tensor] = {}

    def step(x: Tensor) -> Tensor:
        x.mul_(2)
        kept["x"] = x
        kept["row"] = x[1:]
        return x.sin()

    return step


@cases(lambda: (leaf(3),), unsupported="side-effect")
def list_that_grows_and_is_read() -> Step:
    kept: list[Tensor] = []

    def step(x: Tensor) -> Tensor:
        kept.append(x * 2)
        return x + len(kept)

    return step


@cases(lambda: (leaf(3), {"x": plain(3)}), "dynamic")
def argument_given_back(x: Tensor, state: dict[str, Tensor]) -> Any:
    state["x"] = x * 2
    return state, x + 1


@cases(lambda: (leaf(3), [plain(3)]))
def argument_given_back_unchanged(x: Tensor, parts: list[Tensor]) -> Any:
    return {"parts": parts, "sum": x + parts[0]}


@cases(lambda: (leaf(3), {}), unsupported="new-object-side-effect")
def argument_gets_a_container_of_its_own_class(x: Tensor, state: dict[Any, Any]) -> Tensor:
    state["pair"] = Pair(x * 2, x.sin())
    state[0, 1] = x.cos()
    return x + 1


@cases(lambda: (leaf(3),), unsupported="hook-on-input")
def hook_on_a_returned_input(x: Tensor) -> Tensor:
    x.register_hook(lambda gradient: gradient * 3)
    return x


@cases(lambda: (leaf(3), tape(3)), unsupported="hook-on-input")
def hooks_on_inputs(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.register_hook(lambda gradient: gradient * 3)
    y.register_hook(lambda gradient: gradient + 1)
    y.register_hook(lambda gradient: gradient * gradient)
    return (x * y).sin(), y


@cases(lambda: (leaf(3), tape(3), leaf(3)), unsupported="hook-on-input")
def hooks_on_inputs_of_separate_results(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    x.register_hook(lambda gradient: gradient * 3)
    y.register_hook(lambda gradient: gradient + 1)
    return (x * y).sin(), z * 2


@cases(lambda: (leaf(3), leaf(3)), unsupported="hook-on-input")
def hooks_on_inputs_that_are_written_without_grad(x: Tensor, y: Tensor) -> Tensor:
    x.register_hook(lambda gradient: gradient * 3)
    y.register_hook(lambda gradient: gradient * 5)
    with torch.no_grad():
        x.mul_(2)
        y.add_(1)
    return x * y


@cases(lambda: (leaf(3),), unsupported="hook-on-input")
def hook_on_an_input_that_reads_an_intermediate(x: Tensor) -> Tensor:
    scale = x.detach() * 2
    x.register_hook(lambda gradient: gradient * scale)
    return x.sin()


@cases(lambda: (leaf(3),), unsupported="hook-on-input")
def hook_on_a_leaf_of_a_closure() -> Step:
    weight = leaf(3)

    def step(x: Tensor) -> Tensor:
        weight.register_hook(lambda gradient: gradient * 2)
        return x * weight

    return step


@cases(lambda: (tape(4, 4),))
def view_between_detaching_and_other_memory(x: Tensor) -> Tensor:
    x.detach_()
    view = x.t()
    x.data = x.data * 2
    return view


@cases(lambda: (leaf(4, 4),))
def view_of_a_leaf_between_detaching_and_other_memory(x: Tensor) -> tuple[Tensor, Tensor]:
    x.detach_()
    view = x.t().t()
    x.data = x.data * 2
    return view, x.t()


class KeptOnLayers(nn.Module):
    """A layer of torch's has no code of the user's: what it is given is named elsewhere alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        other: Any = nn.Linear(3, 3)
        other.scale, other.before = 2.0, None
        self.other: Any = other


@cases(lambda: (leaf(2, Fixed(3)),), "dynamic")
class ResultKeptOnALayer(KeptOnLayers):
    def forward(self, x: Tensor) -> Tensor:
        result = self.layer(x) * self.other.scale
        self.layer.last = result.detach()
        self.other.before = result
        return result.sin()


@cases(lambda: (leaf(2, Fixed(3)),), "dynamic")
class WeightBoundAnew(KeptOnLayers):
    def forward(self, x: Tensor) -> Tensor:
        self.layer.weight = nn.Parameter(self.layer.weight.detach() * 0.5)
        return self.layer(x)


@cases(lambda: (leaf(2, Fixed(3)),))
def result_kept_on_a_layer_of_a_closure() -> Step:
    layer = nn.Linear(3, 3)

    def step(x: Tensor) -> Tensor:
        setattr(layer, "last", x * 2)  # noqa: B010
        return layer(x)

    return step
