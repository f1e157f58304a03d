"""A GPU that is not there, as a script sees it: where tensors are, what torch answers, and the end of it."""

import copy
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from aotlens.errors import UnsupportedError, UserError
from aotlens.gpu_emulation.autocast import autocast_replacements
from aotlens.gpu_emulation.contexts import emulating
from aotlens.gpu_emulation.cuda_queries import script_replacements
from aotlens.gpu_emulation.tensor_devices import device_replacements
from aotlens.gpu_emulation.transfers import transfer_replacements
from aotlens.model.gpus.names import find_target
from aotlens.torch_api.fake.gpu import missing_gpu_patches
from aotlens.torch_api.replacements import Replacement

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there, and none is pretended")

GPU = torch.device("cuda", 0)


@contextmanager
def with_gpu() -> Iterator[None]:
    with emulating("h100", fake=False):
        yield


def table() -> list[Replacement]:
    rows = [*script_replacements(find_target("h100")), *device_replacements(), *transfer_replacements()]
    rows += autocast_replacements(with_cpu=True)
    return rows + list(missing_gpu_patches())


def test_a_copy_of_a_whole_model_is_where_it_was() -> None:
    with with_gpu():
        model = nn.Linear(2, 2).cuda()
        assert copy.deepcopy(model).weight.is_cuda
        assert not copy.deepcopy(model.cpu()).weight.is_cuda


def test_every_name_has_its_reason_and_torch_knows_it() -> None:
    """A release of torch that renames one fails here, by name."""
    assert [row.name for row in table() if not row.reason] == []
    assert [row.name for row in table() if not hasattr(row.owner, row.name)] == []


def test_everything_is_put_back_after_an_error() -> None:
    rows = table()
    before = [vars(row.owner).get(row.name, "absent") for row in rows]
    kernels = torch._C._dispatch_dump("aten::mm")
    with pytest.raises(ZeroDivisionError), with_gpu():
        _fail_on_the_gpu()
    assert [vars(row.owner).get(row.name, "absent") for row in rows] == before
    assert torch._C._dispatch_dump("aten::mm") == kernels
    assert not torch.randn(2).is_cuda
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
        torch.randn(2).cuda()


def _fail_on_the_gpu() -> None:
    assert torch.randn(2, device="cuda").is_cuda
    raise ZeroDivisionError


def test_what_is_asked_for_on_the_gpu_and_what_comes_of_it_is_there() -> None:
    with with_gpu():
        a, device = torch.randn(4, 4, device="cuda"), torch.device("cuda")
        on_gpu = [
            a,
            torch.tensor([1.0, 2.0], device=device),
            torch.ones(3).to(device, torch.bfloat16, non_blocking=True),
            torch.arange(4).cuda(0),
            torch.ones(2).to(a),
            *(torch.zeros_like(a), a.new_zeros(3), a + 1, a @ a, a[0], a.t(), a.detach(), a.clone()),
            *(torch.stack([a, a]), a.half(), a.to(torch.float64), a.to("cuda"), *a.split(2)),
        ]
        assert {(one.device, one.is_cuda, one.is_cpu, one.get_device()) for one in on_gpu} == {
            (GPU, True, False, 0)
        }
        on_cpu = [torch.randn(3), a.cpu(), a.to("cpu"), a.cpu() + 1, a.to(device="cpu", dtype=torch.float64)]
        assert {(one.device.type, one.is_cuda, one.get_device()) for one in on_cpu} == {("cpu", False, -1)}
        assert a.to("cuda") is a
        assert a.cuda() is a
        assert (a.type(), a.cpu().type()) == ("torch.cuda.FloatTensor", "torch.FloatTensor")
        assert nn.DataParallel(nn.Linear(4, 2).cuda())(a).is_cuda
        assert "device='cuda:0'" in repr(a)
        torch.set_default_device("cuda")
        try:
            assert nn.Linear(2, 2).weight.is_cuda
        finally:
            torch.set_default_device(None)
        with pytest.raises(RuntimeError, match="`cuda:1`; aotlens emulates one GPU"):
            torch.zeros(2, device="cuda:1")


def test_a_transfer_is_a_copy_and_its_gradient_comes_back() -> None:
    with with_gpu():
        x = torch.randn(3, requires_grad=True)
        there = x.cuda()
        assert there.data_ptr() != x.data_ptr()
        (there * 2).sum().backward()
        assert x.grad is not None
        assert not x.grad.is_cuda
        assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_tensors_of_two_devices_meet_where_a_gpu_takes_both_only() -> None:
    with with_gpu():
        a, at = torch.randn(4, 3, device="cuda"), torch.tensor([0, 2])
        assert a[at].is_cuda
        assert (a * torch.tensor(2.0)).is_cuda
        a[at] = 1.0
        a.copy_(torch.zeros(4, 3))
        with pytest.raises(
            UserError, match=r"`aten.add.Tensor` meets .*size \(3,\) is on the CPU.*`\.cuda\(\)`"
        ):
            a + torch.randn(3)
        with pytest.raises(UserError, match=r"write `\.cpu\(\)\.numpy\(\)`"):
            a.numpy()
        assert a.cpu().numpy().shape == (4, 3)


def test_a_training_script_runs_on_it() -> None:
    """The rest of what such scripts call: queries, streams, scaler, pinned batches, checkpoints."""
    with with_gpu():
        assert torch.cuda.is_available()
        assert torch.accelerator.is_available()
        assert (torch.cuda.device_count(), torch.cuda.current_device()) == (1, 0)
        assert torch.cuda.get_device_capability() == (9, 0)
        assert "H100" in torch.cuda.get_device_name()
        assert torch.cuda.memory_allocated() == 0
        torch.cuda.manual_seed_all(3)
        generator = torch.Generator(device="cuda").manual_seed(3)
        assert isinstance(generator, torch.Generator)
        assert torch.rand(2, device="cuda", generator=generator).is_cuda
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(torch.cuda.Stream()):
            start.record()
            end.record()
        torch.cuda.current_stream().synchronize()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) == 0
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).cuda()
        assert all(one.is_cuda for one in (*model.parameters(), *model.buffers()))
        _train(model)
        saved = io.BytesIO()
        torch.save(model.state_dict(), saved)
        saved.seek(0)
        assert all(one.is_cuda for one in torch.load(saved, map_location="cuda").values())
        with pytest.raises(UnsupportedError, match=r"`torch.cuda.CUDAGraph` where no GPU is"):
            torch.cuda.CUDAGraph()


def _train(model: Any) -> None:
    data = TensorDataset(torch.randn(8, 8), torch.randint(0, 2, (8,)))
    optimizer, scaler = torch.optim.AdamW(model.parameters(), fused=True), torch.amp.GradScaler("cuda")
    for x, y in DataLoader(data, batch_size=4, shuffle=True, pin_memory=True):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = functional.cross_entropy(model(x.to("cuda", non_blocking=True)), y.cuda())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert all(one.grad.is_cuda for one in model.parameters())
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert loss.isfinite().item()


def test_data_that_a_parameter_is_given_brings_its_place() -> None:
    with with_gpu():
        weight = nn.Parameter(torch.randn(3))
        weight.data = torch.randn(3, device="cuda")
        assert weight.is_cuda
        assert weight.detach().is_cuda
        assert weight[1:].is_cuda
        other: Tensor = torch.empty(3)
        other.copy_(weight.detach())
        assert not other.is_cuda
