"""Modules: parameters and buffers lifted, buffers updated, tied weights, missing buffers."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.programs.program import Cases, Fixed, ints, leaf, plain

cases = Cases("modules")


@cases(lambda: (plain(5, Fixed(3)),), "dynamo", "dynamic")
def linear() -> nn.Module:
    return nn.Linear(3, 4)


@cases(lambda: (plain(5, 3),), "dynamo")
def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))


@cases(lambda: (plain(4, 3, 6, 6),), "inductor")
def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())


class OverTheLast(nn.Module):
    """Batch norm of a transposed input, whose result is contiguous on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Any:
        normed = self.norm(x.transpose(-1, -2))
        return normed, normed.view(-1).exp()


@cases(lambda: (leaf(4, 5, Fixed(3)),), "inductor", "dynamic")
def batch_norm_of_transposed() -> nn.Module:
    return OverTheLast()


@cases(lambda: (leaf(4, 5, Fixed(3)),), "inductor", "dynamic")
def batch_norm_of_transposed_in_eval() -> nn.Module:
    return OverTheLast().eval()


@cases(lambda: (plain(2, 3, 4, 4).to(memory_format=torch.channels_last),), "inductor")
def batch_norm_of_channels_last() -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()).eval()


@cases(lambda: (plain(4, 3, 6, 6),))
def batch_norm_in_eval() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()


@cases(lambda: (plain(4, 3, 6, 6),), context=torch.no_grad)
def batch_norm_under_no_grad() -> nn.Module:
    return nn.BatchNorm2d(3)


@cases(lambda: (plain(4, 3),), context=torch.inference_mode)
def batch_norm_under_inference_mode() -> nn.Module:
    return nn.BatchNorm1d(3).eval()


@cases(lambda: (ints(2, 5, below=7),), "dynamo")
def embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3))


@cases(lambda: (ints(2, 5, below=7),))
def sparse_embedding() -> nn.Module:
    return nn.Embedding(7, 4, sparse=True)


@cases(lambda: (plain(2, 5, 8),))
def transformer_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


@cases(lambda: (plain(2, 5, 3),))
def lstm() -> nn.Module:
    return nn.LSTM(3, 4, batch_first=True)


@cases(lambda: (leaf(Fixed(3), 2, Fixed(4)),), "dynamic")
def lstm_with_dropout() -> nn.Module:
    return nn.LSTM(4, 3, num_layers=3, dropout=0.5, bidirectional=True)


@cases(lambda: (leaf(2, Fixed(3), Fixed(4)),), "dynamic")
def gru_with_dropout() -> nn.Module:
    return nn.GRU(4, 3, num_layers=2, dropout=0.5, batch_first=True)


@cases(lambda: (plain(4, 3, 6, 6),))
def group_norm_and_pooling() -> nn.Module:
    return nn.Sequential(nn.GroupNorm(1, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Counter(nn.Module):
    """A buffer counted up in every call."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return x * self.weight * self.calls


class Tied(nn.Module):
    """One parameter under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, index: Tensor) -> Tensor:
        return self.head(self.embed(index).sin())


class BufferIsNone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("scale", None)
        self.register_parameter("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight if self.scale is None else x


class Frozen(nn.Module):
    """One parameter that requires no grad, one unused."""

    def __init__(self) -> None:
        super().__init__()
        self.fixed = nn.Parameter(torch.randn(3), requires_grad=False)
        self.free = nn.Parameter(torch.randn(3))
        self.unused = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.fixed + self.free


class ReturnsParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.weight, self.weight.t(), x + self.weight


class UpdatesParameter(nn.Module):
    """A parameter changed under no_grad, as weight constraints do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.clamp_(-0.5, 0.5)
        return x * self.weight


class ComplexParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).abs()


class Cache(nn.Module):
    """A buffer written at a slice; the result is a view of it."""

    keys: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(8, 3))

    def forward(self, x: Tensor, start: int) -> Tensor:
        self.keys[start : start + x.shape[0]] = x
        return self.keys[: start + x.shape[0]]


class SharedStorage(nn.Module):
    """Two buffers on one storage, neither mutated."""

    whole: Tensor
    part: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("whole", torch.randn(6))
        self.register_buffer("part", self.whole[:3])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.part + self.whole.sum()


class Hooked(nn.Module):
    """Forward hooks run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.inner.register_forward_hook(lambda module, args, out: out * 2)
        self.inner.register_forward_pre_hook(lambda module, args: (args[0] + 1,))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class BufferReplaced(nn.Module):
    """A buffer assigned anew, not changed in place."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
        return x - self.mean


class KeywordsAndDicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, batch: dict[str, Any], scale: float = 2.0, **extra: Tensor) -> dict[str, Any]:
        out = self.inner(batch["x"]) * scale
        return {"logits": out, "parts": [out.sum(), out.view(-1)], "extra": extra}


class Checkpointed(nn.Module):
    """Activation checkpointing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)


cases(lambda: (plain(4, Fixed(3)),), "dynamo", "dynamic")(Counter)
cases(lambda: (ints(2, 5, below=7),), "dynamo")(Tied)
cases(lambda: (plain(2, 3),))(BufferIsNone)
cases(lambda: (plain(2, 3),))(Frozen)
cases(lambda: (plain(3, 4),))(ReturnsParameter)
cases(lambda: (plain(2, 3),))(UpdatesParameter)
cases(lambda: (plain(2, 3),))(ComplexParameter)
cases(lambda: (plain(2, 3), 1), context=torch.no_grad)(Cache)
cases(lambda: (plain(3),))(SharedStorage)
cases(lambda: (plain(2, 3),))(Hooked)
cases(lambda: (plain(2, 3),))(BufferReplaced)
cases(lambda: ({"x": plain(2, 3)}, 3.0))(KeywordsAndDicts)
cases(lambda: (plain(2, 3),), "dynamo")(Checkpointed)


class SharedModule(nn.Module):
    """One module at two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = self.first

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


@cases(lambda: (plain(5, Fixed(3)),), "dynamo", "inductor")
def one_module_at_two_names() -> nn.Module:
    return SharedModule()


@cases(lambda: (plain(3, Fixed(4)),), "dynamo")
class UpdatesParametersByOperators(nn.Module):
    """`+=` binds what it has written to; a module takes nothing but a parameter there."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight += x.sum(0)  # type: ignore[misc]  # torch declares no `__iadd__` for it
            self.inner.weight *= 0.5
        return self.inner(x) * self.weight


@cases(lambda: (plain(3, Fixed(4)),))
class AsksForParameters(nn.Module):
    """What is a parameter is one while it is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight if isinstance(self.weight, nn.Parameter) else x + self.weight


@cases(lambda: (plain(3, Fixed(4)),))
class AsksForBuffers(nn.Module):
    """The same of a buffer."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Buffer(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.scale *= 2
        return x * self.scale if isinstance(self.scale, nn.Buffer) else x + self.scale
