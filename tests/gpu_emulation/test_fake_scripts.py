"""Scripts without memory, and scripts that ask for a GPU, through the real server."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from aotlens.model.codec import decode
from aotlens.model.report import Report
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import Answer, TraceOptions, TraceRequest
from tests.forked import worker_command

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there, and none is pretended")

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120.0

MODEL = """\
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.tied = nn.Linear(8, 8), nn.Linear(8, 8)
            self.tied.weight = self.layer.weight

        def forward(self, x):
            return self.tied(self.layer(x)).relu().mean()
"""


@pytest.fixture(scope="module")
def client() -> Iterator[WorkerClient]:
    with WorkerClient(command=worker_command()) as started:
        yield started


def trace(
    client: WorkerClient, folder: Path, source: str, name: str | None = None, **asked: object
) -> Answer:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(MODEL) + textwrap.dedent(source))
    options = TraceOptions(**asked)  # type: ignore[arg-type]
    return client.submit(TraceRequest(str(script), name, options=options)).future.result(LIMIT_S)


def report(answer: Answer) -> Report:
    assert answer.failure is None, answer.failure
    assert answer.report is not None
    return decode(answer.report)


def line_of(source: str, text: str) -> int:
    lines = (textwrap.dedent(MODEL) + textwrap.dedent(source)).splitlines()
    return next(at for at, line in enumerate(lines, 1) if text in line)


TRAINING = """
    model = Net().double().float()
    assert model.tied.weight is model.layer.weight
    data = torch.utils.data.TensorDataset(torch.randn(8, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    step = torch.compile(model)
    for (x,) in torch.utils.data.DataLoader(data, 4, True, None, None, 2, prefetch_factor=2):
        loss = step(x)
        loss.backward()
        optimizer.step()
        print(type(x).__name__, type(loss).__name__)
"""


@pytest.mark.rotates
def test_a_training_script_without_memory(client: WorkerClient, tmp_path: Path) -> None:
    answer = trace(client, tmp_path, TRAINING, fake=True)
    (target,) = report(answer).targets
    assert (target.qualname, target.mode, target.frontend) == ("Net.forward", "training", "dynamo")
    assert answer.output.splitlines()[0] == "FakeTensor FakeTensor"


def test_a_function_by_name_without_memory(client: WorkerClient, tmp_path: Path) -> None:
    source = "Net()(torch.randn(4, 8))\nprint('ran')\n"
    answer = trace(client, tmp_path, source, "Net.forward", fake=True)
    (target,) = report(answer).targets
    assert (target.qualname, target.frontend, answer.output) == ("Net", "direct", "ran\n")


READING = [
    ("step(x).item()", "a number from a tensor"),
    ("if step(x) > 0: pass", "a number from a tensor"),
    ("print(f'{step(x):.3f}')", "a number from a tensor"),
    ("step(x).detach().numpy()", "an array of a tensor's values"),
    ("x.nonzero()", "the sizes that `aten.nonzero.default` gives"),
    ("[x[i] for i in torch.randperm(3).tolist()]", "a number from a tensor"),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("line", "what"), READING)
def test_a_value_that_is_needed(client: WorkerClient, tmp_path: Path, line: str, what: str) -> None:
    source = f"""
    x, step = torch.randn(4, 8), Net()
    {line}
    """
    failure = trace(client, tmp_path, source, fake=True).failure
    assert failure is not None
    at = line_of(source, line)
    assert (failure.kind, failure.line, failure.exit_code) == ("no-value", at, 2)
    assert failure.message.startswith(f"{tmp_path}/script.py:{at} needs {what}")
    assert "leave --fake out" in failure.message
    assert "torch/" not in failure.traceback


def test_an_operator_that_torch_cannot_run_on_fake_tensors(client: WorkerClient, tmp_path: Path) -> None:
    source = "torch._empty_affine_quantized([2], scale=0.1, zero_point=0, dtype=torch.qint8)\n"
    failure = trace(client, tmp_path, source, fake=True).failure
    assert failure is not None
    assert failure.kind == "no-value"
    assert "runs `aten::_empty_affine_quantized`, which torch does not support on fake" in failure.message


def test_a_value_that_is_needed_after_a_capture_ends_the_trace(client: WorkerClient, tmp_path: Path) -> None:
    source = """
    step = torch.compile(Net())
    print(step(torch.randn(4, 8)).item())
    """
    shown = report(trace(client, tmp_path, source, fake=True))
    (finding,) = shown.diagnostics
    assert (finding.code, finding.severity) == ("AL404", "information")
    assert "what was captured before is complete" in finding.message
    assert [target.qualname for target in shown.targets] == ["Net.forward"]


ASKING = [
    "model = Net().cuda()",
    "x = torch.randn(3, device='cuda')",
    "x = torch.zeros(2).to(torch.device('cuda', 0))",
    "torch.cuda.get_device_name()",
    "model = nn.Linear(2, 2, device='cuda')",
]


@pytest.mark.rotates
@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("line", ASKING)
def test_a_gpu_that_is_asked_for(client: WorkerClient, tmp_path: Path, line: str, fake: bool) -> None:
    failure = trace(client, tmp_path, f"\n{line}\n", fake=fake).failure
    assert failure is not None
    at = line_of(f"\n{line}\n", line)
    assert (failure.kind, failure.line) == ("no-gpu", at)
    assert failure.message == (
        f"{tmp_path}/script.py:{at} asks for a GPU, and there is none here; `--gpu NAME` (h100, a100, …) goes"
        f" on as if that one were there: aotlens inspect {tmp_path}/script.py --gpu h100"
    )


@pytest.mark.rotates
@pytest.mark.parametrize("fake", [False, True])
def test_a_script_on_a_gpu(client: WorkerClient, tmp_path: Path, fake: bool) -> None:
    pytest.importorskip("triton", reason="code for a GPU needs Triton")
    source = """
    model = Net().cuda()
    step = torch.compile(model)
    x = torch.randn(4, 8, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = step(x)
    loss.backward()
    print(loss.device, model.layer.weight.grad.device, torch.cuda.get_device_name())
    """
    answer = trace(client, tmp_path, source, gpu="h100", fake=fake)
    (target,) = report(answer).targets
    assert answer.output == "cuda:0 cuda:0 NVIDIA H100 SXM\n"
    assert {row.tensor.device for row in target.inputs if row.tensor} == {"cuda:0"}
    assert {row.phase for row in target.kernels} == {"forward", "backward"}
    assert [row.error for row in target.kernels if row.error] == []
    assert any(text.startswith("autocast('cuda') casts by CUDA's rules") for text in target.gpu_assumptions)


OWN_ERRORS = [
    ("torch.load('absent.pt', map_location='cuda')", "raised FileNotFoundError: "),
    ("torch.ones(2, device='cuda:7')", "not supported: `cuda:7`; aotlens emulates one GPU"),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("line", "what"), OWN_ERRORS)
def test_the_script_s_own_error_is_told_at_its_line(
    client: WorkerClient, tmp_path: Path, line: str, what: str
) -> None:
    pytest.importorskip("triton", reason="code for a GPU needs Triton")
    failure = trace(client, tmp_path, f"\n{line}\n", gpu="h100").failure
    assert failure is not None
    at = line_of(f"\n{line}\n", line)
    assert (failure.line, failure.exit_code) == (at, 2)
    assert what in failure.message
    assert "aotlens/" not in failure.traceback


@pytest.mark.rotates
def test_a_decoder_wider_than_this_test_may_be() -> None:
    """Two layers of full width: 1.3 GB of parameters, and as much again for gradients, in 0.6 GB at most."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run([sys.executable, '-m', 'aotlens', 'inspect', 'examples/decoder_7b.py', '--fake',"
        " '--', '--layers', '2'], check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    *shown, peak = done.stdout.splitlines()
    assert "0.67 billion parameters on cpu" in done.stderr
    assert any("layers.0–1.mlp.gate.weight" in line and "×2" in line for line in shown)
    assert int(peak) < 600e6
