"""Compiled results from disk: found for the same question only, and as eager in all that a caller sees."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotlens import pipeline
from aotlens.compiled import Compiled
from aotlens.disk_cache import Store, open_store
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.session.run import run_compiled
from tests.engine.judging import judge
from tests.forked import Piped
from tests.programs import PROGRAMS, Program
from tests.programs.program import leaf, plain

pytestmark = pytest.mark.filterwarnings("ignore")  # Dynamo warns of its own deprecations

EAGER = CompileOptions(backend="eager", cache=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path / "cache"))
    torch.compiler.reset()
    yield tmp_path / "cache"
    torch.compiler.reset()


def results(
    fn: Callable[..., Any], calls: list[tuple[Any, ...]], options: CompileOptions = EAGER
) -> tuple[list[Any], list[Compiled]]:
    """What the calls give in a process that has compiled nothing yet, and what was compiled for them."""
    torch.compiler.reset()
    found: list[Compiled] = []
    with observing(on_compiled=found.append):
        compiled = torch.compile(fn, backend=dynamo_backend(options))
        return [compiled(*args) for args in calls], found


def outcomes(
    fn: Callable[..., Any], *args: Any, options: CompileOptions = EAGER, times: int = 2
) -> list[tuple[str, str]]:
    """What the cache says of the same call in one process after another."""
    found: list[tuple[str, str]] = []
    for _ in range(times):
        _, compiled = results(fn, [args], options)
        shelf = compiled[0].cache_entry
        assert shelf is not None
        found.append((shelf.answer().outcome, shelf.answer().reason))
    return found


def test_the_code_of_a_graph_module_is_found_again() -> None:
    """Torch names the file of such code by a number that it counts up."""
    x = plain(3, 4)
    found = [outcomes(torch.fx.symbolic_trace(lambda x: x.sin() * 2), x, times=1) for _ in range(2)]
    assert [outcome for ((outcome, _),) in found] == ["miss", "hit"]


def test_the_second_process_runs_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))

    def step(x: Tensor, written: Tensor) -> tuple[Tensor, Tensor]:
        written.add_(1)
        return model(x).sum(), written[1:]

    def run() -> tuple[Any, ...]:
        model.zero_grad()
        torch.manual_seed(0)
        x, written = plain(3, 4), plain(3)
        ((loss, view),), compiled = results(step, [(x, written)])
        loss.backward()
        assert view._base is written
        gradients = [parameter.grad for parameter in model.parameters()]
        return compiled[0], [loss.detach(), written, *gradients]

    miss, expected = run()
    for stage in ("capture_graph_module", "build_joint", "partition", "generate"):
        monkeypatch.delattr(pipeline, stage)
    hit, found = run()
    assert [one.cache_entry.answer().outcome for one in (miss, hit)] == ["miss", "hit"]
    assert hit.source == miss.source
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


SAMPLE = (
    "aliasing_inputs/",
    "autograd/",
    "checkpointing/",
    "higher_order/",
    "modes/",
    "mutation/",
    "views_of_inputs/",
    "views_of_intermediates/",
)
"""Files of which the first programs that go through Dynamo are judged twice."""
CHOSEN = [
    program
    for start in SAMPLE
    for program in [one for one in PROGRAMS if one.name.startswith(start) and "dynamo" in one.tags][:2]
]


@pytest.mark.rotates
@pytest.mark.parametrize("program", CHOSEN, ids=lambda program: program.name)
def test_a_program_from_disk_is_as_eager(program: Program) -> None:
    for _ in range(2):
        torch.compiler.reset()
        judge(program, lambda fn, args: torch.compile(fn, backend=dynamo_backend(EAGER)))


@torch.library.custom_op("reuse::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def scaled(x: Tensor) -> Tensor:
    return (x * 2).sin()


def shifted(x: Tensor) -> Tensor:
    return (x * 3).sin()


@pytest.mark.rotates
def test_another_question_finds_nothing() -> None:
    asked: list[Callable[[], list[tuple[str, str]]]] = [
        lambda: outcomes(scaled, leaf(3), times=1),
        lambda: outcomes(shifted, leaf(3), times=1),
        lambda: outcomes(scaled, leaf(4), times=1),
        lambda: outcomes(scaled, plain(3), times=1),
        lambda: outcomes(scaled, leaf(3).double(), times=1),
        lambda: outcomes(scaled, leaf(3, 2)[:, 0], times=1),
        lambda: outcomes(scaled, leaf(3), options=replace(EAGER, policy="default"), times=1),
        lambda: outcomes(scaled, leaf(3), options=replace(EAGER, keep_input_mutations=False), times=1),
    ]
    assert [ask() for ask in asked] == [[("miss", "")]] * len(asked)
    with torch.no_grad():
        assert outcomes(scaled, leaf(3), times=1) == [("miss", "")]
    with torch.autocast("cpu"):
        assert outcomes(scaled, leaf(3), times=1) == [("miss", "")]
    assert [ask() for ask in asked] == [[("hit", "")]] * len(asked)


@pytest.mark.rotates
def test_what_no_text_can_tell_is_not_kept() -> None:
    def policy(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("not asked")

    def with_reason(options: CompileOptions) -> list[tuple[str, str]]:
        return outcomes(scaled, leaf(3), options=options)

    asked = {
        "a backend that has no name": replace(EAGER, backend=lambda gm, inputs: gm.forward),
        "a policy that names values": replace(EAGER, policy="save:x"),
        "decompositions of your own": replace(EAGER, decompositions={}),
    }
    for reason, options in asked.items():
        assert with_reason(options) == [("not stored", reason)] * 2

    def calls_own(x: Tensor) -> Tensor:
        return twice(x) + 1

    for outcome, reason in outcomes(calls_own, plain(3)):
        assert outcome == "not stored"
        assert reason.startswith("the custom operator `reuse.twice.default`, at ")
    same = torch.fx.symbolic_trace(lambda x: x * 1)
    with torch.autograd.graph.saved_tensors_hooks(same, same):
        reason = "hooks on saved tensors that are graph modules"
        assert outcomes(scaled, leaf(3), times=1) == [("not stored", reason)]


def test_a_graph_under_a_checkpoints_hooks_is_found_again() -> None:
    def tripled(x: Tensor) -> Tensor:
        return (x * 3).sin()

    assert outcomes(tripled, leaf(3), times=1) == [("miss", "")]
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        assert outcomes(tripled, leaf(3)) == [("miss", ""), ("hit", "")]


def test_sizes_that_meet_the_conditions_find_the_result() -> None:
    def halved(x: Tensor) -> Tensor:
        return x[: x.shape[0] // 2] * 2 if x.shape[0] > 4 else x

    dynamic = []
    for size in (6, 9, 3):
        torch.compiler.reset()
        found: list[Compiled] = []
        x, y = leaf(size), leaf(size + 5)
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(y, 0)
        with observing(on_compiled=found.append):
            compiled = torch.compile(halved, backend=dynamo_backend(EAGER))
            for given in (x, y):
                assert torch.equal(compiled(given), halved(given))
        dynamic.append([one.cache_entry.answer().outcome for one in found if one.cache_entry is not None])
    assert dynamic == [["miss"], ["hit"], ["miss", "hit"]]


@pytest.mark.parametrize("kept", [True, False], ids=["kept report", "stages run again"])
def test_a_report_is_the_same(kept: bool) -> None:
    def step(x: Tensor, weight: Tensor) -> Tensor:
        hidden = (x @ weight).relu()
        return hidden.sum()

    told = []
    for _ in range(2):
        (loss,), (compiled,) = results(step, [(plain(3, 4), leaf(4, 2))])
        loss[()].backward()
        told.append(compiled.target())
        if not kept:
            _remove("compiled-reports")
    assert [target.cache_answer.outcome for target in told if target.cache_answer] == ["miss", "hit"]
    plainly = [replace(target, cache_answer=None, timings_ms={}) for target in told]
    assert plainly[0] == plainly[1]


def test_turned_off_for_all_it_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", "")
    _, (compiled,) = results(scaled, [(leaf(3),)])
    assert compiled.target().cache_answer is None


def _remove(kind: str) -> None:
    for path in _store().folder.glob(f"{kind}/*/*"):
        path.unlink()


def _store() -> Store:
    store = open_store()
    assert store is not None
    return store


def test_second_derivatives_of_a_result_from_disk() -> None:
    def cubed(x: Tensor) -> Tensor:
        return (x * x * x).sum()

    for _ in range(2):
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        (loss,), _ = results(cubed, [(x,)])
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert torch.equal(second, 6 * x.detach())


@pytest.mark.parametrize("kind", ["compiled", "compiled-reports"])
def test_a_damaged_entry_is_as_if_it_were_not_there(kind: str) -> None:
    expected = torch.sin(torch.ones(3) * 2)
    for _ in range(2):
        (found,), (compiled,) = results(scaled, [(torch.ones(3),)])
        assert torch.equal(found, expected)
        compiled.target()
        for path in _store().folder.glob(f"{kind}/*/*"):
            path.write_bytes(path.read_bytes()[:-20])


SCRIPT = """
import torch

def step(x, weight):
    return (x @ weight).tanh().sum()

x = torch.ones(3, 4, requires_grad=True)
torch.compile(step)(x, torch.ones(4, 2)).backward()
print(x.grad.sum().item())
"""


def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    both = [Piped("-m", "aotlens", "run", "--backend", "eager", str(script)) for _ in range(2)]
    said = [process.stdout.read() for process in both]
    assert [process.wait(300) for process in both] == [0, 0]
    assert len(set(said)) == 1
    (target,) = run_compiled(str(script), (), EAGER, verify=False).targets
    assert target.cache_answer is not None
    assert target.cache_answer.outcome == "hit"
    assert {kind: number for kind, (number, _) in _store().by_kind().items()} == {
        "compiled": 1,
        "compiled-reports": 1,
    }


@pytest.mark.rotates
def test_a_mode_that_asks_for_cuda_graphs_is_cached_where_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mode="reduce-overhead"` on a CPU."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    options = CompileOptions(inductor_config=(("triton.cudagraphs", True),), cache=True)
    found = outcomes(torch.sin, plain(3), options=options)
    expected = ["not stored", "not stored"] if torch.cuda.is_available() else ["miss", "hit"]
    assert [outcome for outcome, _ in found] == expected


@pytest.mark.rotates
def test_inductors_code_is_loaded_and_not_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    options = CompileOptions(cache=True)
    found: list[Any] = []
    for _ in range(2):
        x = torch.arange(6.0, requires_grad=True)
        (out,), (compiled,) = results(scaled, [(x,)], options)
        out.sum().backward()
        outcome = compiled.cache_entry.answer().outcome if compiled.cache_entry else ""
        found.append((outcome, out.detach(), x.grad))
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "empty"))
        monkeypatch.setattr("aotlens.codegen.inductor.compile_with_inductor", None)
    assert [outcome for outcome, *_ in found] == ["miss", "hit"]
    assert torch.equal(found[0][1], found[1][1])
    assert torch.equal(found[0][2], found[1][2])
