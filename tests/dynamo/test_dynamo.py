"""Programs through `torch.compile(fn, backend=...)`: graph breaks, guards and recompiles included."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotlens.capture.dynamo import subject_of
from aotlens.compiled import Compiled
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.observe import observing
from aotlens.options import CompileOptions
from tests.programs.program import leaf, plain

pytestmark = pytest.mark.filterwarnings("ignore")  # Dynamo warns of its own deprecations

EAGER = CompileOptions(backend="eager")


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def test_registered_name() -> None:
    x = leaf(3, 4)
    out = torch.compile(lambda x: (x * 2).sin(), backend="aotlens")(x)
    assert torch.allclose(out, (x * 2).sin())


def test_dynamo_calls_the_module_text_itself() -> None:
    """A Python function in between would cost a small function as much as our wrapper does."""
    frames: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            frames.append(frame.f_code.co_name)

    compiled = torch.compile(lambda x: x.sin() * 2, backend=dynamo_backend(EAGER))
    compiled(plain(3))
    sys.setprofile(note)
    try:
        compiled(plain(3))
    finally:
        sys.setprofile(None)
    assert frames[frames.index("<lambda>") :][:3] == ["<lambda>", "call", "inference_graph"]


def test_graph_break_gives_two_targets() -> None:
    def broken(x: Tensor) -> Tensor:
        hidden = x * 2
        torch._dynamo.graph_break()
        return hidden.sin()

    seen: list[Any] = []
    x = leaf(3)
    with observing(on_compiled=seen.append):
        out = torch.compile(broken, backend=dynamo_backend(EAGER))(x)
    out.sum().backward()
    assert torch.allclose(out, (x * 2).sin())
    assert x.grad is not None
    assert torch.allclose(x.grad, (x * 2).cos() * 2)
    assert [compiled.frontend for compiled in seen] == ["dynamo", "dynamo"]


def test_other_sizes_recompile() -> None:
    seen: list[Any] = []
    double = torch.compile(lambda x: x * 2, backend=dynamo_backend(EAGER))
    with observing(on_compiled=seen.append):
        for size in (3, 4, 5, 6):
            x = plain(size)
            assert torch.equal(double(x), x * 2)
    assert len(seen) == 2  # one static, then one for all sizes


def test_other_pattern_of_duplicates_recompiles() -> None:
    def step(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x * y

    compiled = torch.compile(step, backend=dynamo_backend(EAGER))
    x, y = plain(3), plain(3)
    assert torch.equal(compiled(x.clone(), y), (x + 1) * y)
    assert torch.equal(compiled(z := x.clone(), z), (x + 1) * (x + 1))


@pytest.mark.rotates
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_overlapping_inputs_of_other_sizes(dynamic: bool | None, requires_grad: bool) -> None:
    def step(turned: Tensor, whole: Tensor) -> Tensor:
        turned.mul_(2)
        return turned.sum() + whole.t()

    compiled = torch.compile(step, backend=dynamo_backend(EAGER), dynamic=dynamic)
    for size in (3, 4, 5):
        values = plain(size, size + 1)
        runs = []
        for call in (step, compiled):
            start = values.clone().requires_grad_(requires_grad)
            whole = start * 1
            result = call(whole.t(), whole)
            grads = torch.autograd.grad(result.sum() + whole.sin().sum(), start) if requires_grad else ()
            runs.append((result, whole, *grads))
        assert all(map(torch.equal, *runs))


def test_memory_under_overlapping_inputs_is_seen_at_each_size() -> None:
    def seen(row: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        return row.as_strided(row.size(), row.stride()).sin(), whole * 2

    compiled = torch.compile(seen, backend=dynamo_backend(EAGER), dynamic=True)
    for size in (4, 6, 5):
        whole = plain(size, size)
        assert all(map(torch.equal, compiled(whole[0], whole), seen(whole[0], whole)))


def test_requires_grad_recompiles() -> None:
    compiled = torch.compile(lambda x: x * 2, backend=dynamo_backend(EAGER))
    assert not compiled(plain(3)).requires_grad
    assert compiled(leaf(3)).requires_grad


def test_grad_mode_recompiles() -> None:
    compiled = torch.compile(lambda x: x * 2, backend=dynamo_backend(EAGER))
    x = leaf(3)
    with torch.no_grad():
        assert not compiled(x).requires_grad
    assert compiled(x).requires_grad


def test_two_forwards_before_two_backwards() -> None:
    model = nn.Linear(3, 3)
    compiled = torch.compile(model, backend=dynamo_backend(EAGER))
    first, second = plain(2, 3), plain(2, 3)
    (compiled(first).sum() + compiled(second).square().sum()).backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    (model(first).sum() + model(second).square().sum()).backward()
    for gradient, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


@pytest.mark.rotates
def test_training_steps_follow_eager() -> None:
    def losses(compile_it: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        step = torch.compile(model, backend=dynamo_backend(EAGER)) if compile_it else model
        found = []
        for _ in range(5):
            loss = step(torch.randn(6, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses(compile_it=True) == pytest.approx(losses(compile_it=False), rel=1e-5)


@pytest.mark.rotates
def test_what_follows_a_graph_break_has_a_name_of_its_own() -> None:
    seen: list[Compiled] = []

    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x * 2
            torch._dynamo.graph_break()
            return x + 1

    with observing(on_compiled=seen.append):
        torch.compile(Broken(), backend="aotlens")(torch.ones(3))
    line = Broken.forward.__code__.co_firstlineno + 2
    assert [compiled.name for compiled in seen] == ["Broken", f"Broken after line {line}"]
    assert seen[1].qualname.endswith(f"<locals>.Broken.forward after line {line}")


def test_a_value_at_a_graph_break_has_a_name() -> None:
    seen: list[Compiled] = []

    def unfinished(x: Tensor) -> Tensor:
        return x.exp() + torch._dynamo.disable(torch.sin)(x) * 2

    with observing(on_compiled=seen.append):
        torch.compile(unfinished, backend="aotlens")(torch.ones(3))
    slots = [entry.slot for entry in seen[1].parts.joint.captured.inputs]
    assert [getattr(slot, "name", None) for slot in slots] == ["value_at_break_1", "value_at_break"]


def test_a_packages_decorator_does_not_give_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "decorators_of_a_package.py").write_text(
        "def checked(fn):\n    def wrapper(*args):\n        return fn(*args)\n    return wrapper\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    checked = importlib.import_module("decorators_of_a_package").checked

    class Net(nn.Module):
        @checked
        def forward(self, x: Tensor) -> Tensor:
            return x.sin()

    seen: list[Compiled] = []
    with observing(on_compiled=seen.append):
        torch.compile(Net(), backend="aotlens", options={"backend": "eager"})(torch.ones(3))
    assert [one.target().name for one in seen] == ["Net"]


@pytest.mark.rotates
def test_a_layer_of_torchs_own_stands_where_it_is_called() -> None:
    seen: list[Compiled] = []
    layers = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), backend="aotlens")

    def step(x: Tensor) -> Any:
        return layers(x)

    with observing(on_compiled=seen.append):
        step(torch.ones(3, 4))
    target = seen[0].target()
    line = step.__code__.co_firstlineno + 1
    assert (target.name, target.qualname, target.span and target.span.line) == (
        "Sequential",
        "Sequential.forward",
        line,
    )
    sites = [site for row in target.inputs for site in row.sites]
    assert {(site.span.file, site.span.line, site.text) for site in sites} == {(__file__, line, "layers(x)")}
    forward = target.stage("forward")
    assert forward is not None
    assert {node.spans[0].line for node in forward.nodes if node.op == "call_function"} == {line}


def test_the_rest_of_a_function_of_torch_is_named_after_its_line() -> None:
    graph = torch.fx.Graph()
    file = importlib.import_module("torch.nn.attention.flex_attention").__file__
    graph.output(graph.call_function(torch.ones, (2,)))
    for made in graph.nodes:
        made.meta["aotlens_codes"] = (("torch_dynamo_resume_in_create_block_mask_at_1912", file, 1912),)
    subject = subject_of(torch.fx.GraphModule({}, graph))
    assert subject.name == "create_block_mask after line 1912"
