"""Modules whose tensors or calls are not plain: hooks, parametrizations, tied and missing tensors."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.nn.utils import spectral_norm as normed_by_a_hook

from tests.programs.program import Cases, leaf, plain

cases = Cases("module_kinds")


@cases(lambda: (leaf(2, 3),), "dynamo")
def forward_hooks() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[0].register_forward_hook(lambda module, args, result: result + 1)
    return model


def _tripled(module: nn.Module, given: Any, arriving: Any) -> Any:
    return (given[0] * 3,)


@cases(lambda: (leaf(2, 3),), "dynamo", later="hooks on a module's backward")
def backward_hooks() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_full_backward_hook(_tripled)
    return model


@cases(lambda: (plain(2, 3),), "dynamo")
def hook_on_a_parameter() -> nn.Module:
    model = nn.Linear(3, 3)
    model.weight.register_hook(lambda gradient: gradient * 2)
    return model


@cases(lambda: (plain(2, 3),), "dynamo")
def weight_norm() -> nn.Module:
    return parametrizations.weight_norm(nn.Linear(3, 4))


@cases(lambda: (plain(2, 3),), "dynamo")
def spectral_norm() -> nn.Module:
    return parametrizations.spectral_norm(nn.Linear(3, 4))


@cases(lambda: (plain(2, 3),), "dynamo")
def spectral_norm_in_eval() -> nn.Module:
    return parametrizations.spectral_norm(nn.Linear(3, 4)).eval()


@cases(lambda: (leaf(2, 3),), "dynamo")
def weight_bound_anew_by_a_hook() -> nn.Module:
    return nn.Sequential(normed_by_a_hook(nn.Linear(3, 4)), nn.Tanh())


@cases(lambda: (leaf(2, 3),), "dynamo")
def pruned() -> nn.Module:
    return nn.Sequential(prune.random_unstructured(nn.Linear(3, 4), "weight", 0.5), nn.Tanh())


class TiedWithMissing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("scale", None)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.second(self.first(x))
        return hidden if self.scale is None else hidden * self.scale


cases(lambda: (plain(2, 3),), "dynamo")(TiedWithMissing)


class Cached(nn.Module):
    """Keys and values of earlier positions, written in place."""

    keys: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(3, 3)
        self.register_buffer("keys", torch.zeros(2, 5, 3))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        self.keys.index_copy_(1, position, self.project(x)[:, None].detach())
        return torch.einsum("bd,bpd->bp", x, self.keys).softmax(-1)


cases(lambda: (leaf(2, 3), torch.tensor([1])), "dynamo")(Cached)


@cases(lambda: (leaf(3),), "dynamo")
def disabled_inside(x: Tensor) -> Tensor:
    return torch.compiler.disable(torch.cos)(x * 2) + x


@cases(lambda: (leaf(4, 3), {"scale": 2.0, "how": "sum", "mask": None, "rest": [plain(3)]}), "dynamo")
def mixed_containers(x: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    out = x * options["scale"] + options["rest"][0]
    return {"out": getattr(out, options["how"])(), "mask": options["mask"], "parts": (out, [out.mean()])}
