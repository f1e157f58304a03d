"""The fix of AL301: which call is wrapped in a checkpoint, and that the edited script does what it says."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import aotlens
from aotlens.diagnostics.checkpoint_call import Advice, best_call
from aotlens.diagnostics.checkpoint_edit import can_be_checkpointed, checkpointed
from aotlens.diagnostics.diagnose import diagnose
from aotlens.diagnostics.findings import Limits
from aotlens.model import Diagnostic, Fix, Span, Target

EXAMPLES = Path(__file__).parents[3] / "examples"
LOW = Limits(saved_bytes=1)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def apply(fix: Fix, path: Path) -> None:
    """Make the edits, the last first, so that the places of the others stay."""
    lines = path.read_bytes().split(b"\n")
    for edit in sorted(fix.edits, key=lambda edit: (edit.span.line, edit.span.col), reverse=True):
        span = edit.span
        first, last = lines[span.line - 1], lines[span.end_line - 1]
        new = first[: span.col] + edit.text.encode() + last[span.end_col :]
        lines[span.line - 1 : span.end_line] = new.split(b"\n")
    path.write_bytes(b"\n".join(lines))


def gpt(module: ModuleType) -> tuple[Any, torch.Tensor]:
    torch.manual_seed(0)
    return module.GPT(module.Config(65)), torch.randint(65, (16, 64))


def inspected(module: ModuleType) -> Target:
    model, tokens = gpt(module)
    return aotlens.inspect(model, tokens, tokens).targets[0]


def loss_and_gradient(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    model, tokens = gpt(module)
    torch.manual_seed(1)
    loss = model(tokens, tokens)
    loss.backward()
    return loss.detach(), model.blocks[0].mlp[0].weight.grad


def saved(target: Target) -> int:
    assert target.partition is not None
    return target.partition.saved_bytes


@pytest.mark.rotates
def test_the_fix_of_the_example_saves_what_it_says_and_computes_the_same(tmp_path: Path) -> None:
    path = tmp_path / "train_gpt_fixed.py"
    shutil.copy(EXAMPLES / "train_gpt.py", path)
    shutil.copytree(EXAMPLES / "data", tmp_path / "data")
    before = load(path)
    target = inspected(before)
    advice = best_call(target)
    assert advice is not None
    found = [entry for entry in diagnose(target, LOW) if entry.fixes]
    assert [entry.code for entry in found] == ["AL301"] * 3
    fixes = {entry.fixes[0] for entry in found}
    assert len(fixes) == 1
    apply(fixes.pop(), path)
    text = path.read_text()
    assert "            x = checkpoint(block, x, use_reentrant=False)\n" in text
    assert "from torch import Tensor, nn\nfrom torch.utils.checkpoint import checkpoint\n" in text
    after = load(path)
    fixed = inspected(after)
    assert saved(fixed) <= advice.saved_bytes
    assert saved(fixed) < saved(target) / 4
    assert fixed.memory is not None
    assert target.memory is not None
    assert fixed.memory.peak_bytes < target.memory.peak_bytes
    for one, other in zip(loss_and_gradient(before), loss_and_gradient(after), strict=True):
        assert torch.equal(one, other)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "model.py"
    path.write_text(text, encoding="utf-8")
    return path


def span_of(path: Path, text: str) -> Span:
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if text in line:
            col = line.index(text)
            return Span(str(path), number, col, number, col + len(text))
    raise AssertionError(text)


def fixed(path: Path, call: str) -> str:
    """The file with the call wrapped."""
    fix = checkpointed(Advice(span_of(path, call), frozenset(), 0, 0))
    assert fix is not None
    apply(fix, path)
    return path.read_text()


@pytest.mark.parametrize(
    ("head", "call", "expected"),
    [
        (
            "import torch\n",
            "block(x)",
            "{import torch\nfrom torch.utils.checkpoint import checkpoint\n}checkpoint(block, x",
        ),
        (
            '"""Doc."""\n',
            "self.mlp(x)",
            '{"""Doc."""\nfrom torch.utils.checkpoint import checkpoint\n}checkpoint(self.mlp, x',
        ),
        ("from torch.utils.checkpoint import checkpoint as ck\n", "f(x, a=1)", "{}ck(f, x, a=1"),
        ("import torch.utils.checkpoint\n", "f(x)", "{}torch.utils.checkpoint.checkpoint(f, x"),
        ("from torch.utils import checkpoint\n", "f(x)", "{}checkpoint.checkpoint(f, x"),
        (
            "import torch\ncheckpoint = 1\n",
            "f(*x)",
            (
                "{import torch\nfrom torch.utils.checkpoint import checkpoint as activation_checkpoint\n}"
                "activation_checkpoint(f, *x"
            ),
        ),
    ],
)
def test_the_edit_follows_the_files_imports(tmp_path: Path, head: str, call: str, expected: str) -> None:
    body = "\n\ndef g(x, f, block, self):\n    return 1 + {} * 2\n"
    path = write(tmp_path, head + body.format(call))
    new_head, wrapped = expected[1:].split("}")
    rest = head.removeprefix(new_head.partition("from torch.utils")[0]) if new_head else head
    result = (new_head + rest if new_head else head) + body.format(f"{wrapped}, use_reentrant=False)")
    assert fixed(path, call) == result


@pytest.mark.parametrize(
    "call",
    [
        "print(x)",
        "checkpoint(f, x)",
        "f()",
        "f(x)(x)",
        "(lambda y: y)(x)",
        "f(x, debug=True)",
        "f(x, **more)",
        "f(y := x)",
        "super().forward(x)",
    ],
)
def test_other_calls_are_not_wrapped(tmp_path: Path, call: str) -> None:
    path = write(tmp_path, f"def g(x, f):\n    return {call}\n")
    assert not can_be_checkpointed(span_of(path, call))


def test_a_file_that_changed_since_has_no_fix(tmp_path: Path) -> None:
    path = write(tmp_path, "def g(x, f):\n    return f(x)\n")
    where = span_of(path, "f(x)")
    write(tmp_path, "def g(x, f):\n    return (f(x)\n")
    assert not can_be_checkpointed(where)


def largest(function: Any, *args: torch.Tensor) -> list[Diagnostic]:
    target = aotlens.inspect(function, *args).targets[0]
    return [entry for entry in diagnose(target, LOW) if entry.code == "AL301"]


class WithBatchNorm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(64)
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def block(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(self.first(x).tanh()).exp().sin())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = self.block(x)
        return x


def test_a_call_that_writes_statistics_is_not_wrapped() -> None:
    found = largest(WithBatchNorm(), torch.randn(32, 64))
    assert found
    assert not any(entry.fixes for entry in found)


def test_a_single_operation_has_no_fix() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.sin(x)).cos()

    assert not any(entry.fixes for entry in largest(function, torch.randn(32, 64, requires_grad=True)))


def wide(x: torch.Tensor) -> torch.Tensor:
    return (x @ torch.ones(64, 4096)).tanh().exp() @ torch.ones(4096, 64)


def test_the_call_with_the_largest_values_is_wrapped_where_there_is_no_loop() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = wide(x)
        return wide(y * 2).sum()

    found = largest(function, torch.randn(256, 64, requires_grad=True))
    edits = {fix.edits[0] for entry in found for fix in entry.fixes}
    assert [edit.text for edit in edits] == ["checkpoint(wide, x, use_reentrant=False)"]


def test_one_call_that_holds_nearly_all_is_not_wrapped() -> None:
    """Its values would all be there again when its backward runs."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = wide(x)
        return y.sum()

    assert not any(entry.fixes for entry in largest(function, torch.randn(256, 64, requires_grad=True)))
