"""A graph that the engine cannot compile never ends the user's program nor changes its numbers."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import aotlens.pipeline
from aotlens.errors import BackendError, InternalError, UnknownValueError, UnsupportedError
from aotlens.frontends.dynamo import aotlens_backend, dynamo_backend
from aotlens.model.codec import loads
from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.session.run import ScriptRun, run_compiled
from tests.command import aotlens as command
from tests.command import python

EAGER = CompileOptions(backend="eager", strict=False)
STAGE_FUNCTIONS = (
    "capture_graph_module",
    "analyse",
    "build_joint",
    "partition",
    "generate",
    "write_module",
    "load_module",
)


def masked(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return (torch.rand_like(x) * weight).sin()


def observed(fn: Callable[..., Any]) -> dict[str, Any]:
    """One call and its backward: everything that a program can see of it."""
    torch.manual_seed(7)
    x, weight = torch.ones(3), torch.full((3,), 2.0, requires_grad=True)
    out = fn(x, weight)
    out.sum().backward()
    return {
        "out": out.detach().tolist(),
        "grad": weight.grad.tolist() if weight.grad is not None else None,
        "x": x.tolist(),
        "version": x._version,
        "types": [type(value) for value in (out, x, weight, weight.grad)],
        "random": torch.rand(2).tolist(),
    }


def failing(error: Exception) -> Callable[..., Any]:
    def stage(*args: Any, **kwargs: Any) -> Any:
        torch.rand(5)  # an attempt that has taken random numbers already
        raise error

    return stage


@pytest.mark.rotates
@pytest.mark.parametrize("stage", STAGE_FUNCTIONS)
@pytest.mark.parametrize(
    ("error", "cause", "code"),
    [
        (UnsupportedError("a case of the test"), "unsupported", "AL402"),
        (InternalError("a promise of the test"), "internal", "AL911"),
        (ValueError("whatever"), "internal", "AL911"),
        (BackendError("no code"), "backend", "AL912"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_stage_that_fails_leaves_the_graph_to_eager_without_a_trace(
    stage: str, error: Exception, cause: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.compiler.reset()
    expected = observed(masked)
    graphs: list[Any] = []
    monkeypatch.setattr(aotlens.pipeline, stage, failing(error))
    with observing(on_not_compiled=graphs.append):
        assert observed(torch.compile(masked, backend=dynamo_backend(EAGER))) == expected
    (record,) = (graph.record() for graph in graphs)
    assert (record.name, record.cause, record.code, record.calls) == ("masked", cause, code, 1)
    assert record.is_graph
    assert record.span is not None
    assert Path(record.span.file) == Path(__file__)


def test_strict_makes_it_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    monkeypatch.setattr(aotlens.pipeline, "build_joint", failing(UnsupportedError("a case of the test")))
    strict = torch.compile(masked, backend="aotlens", options={"backend": "eager", "strict": True})
    with pytest.raises(Exception, match="a case of the test"):
        strict(torch.ones(3), torch.ones(3, requires_grad=True))


def test_a_program_without_a_session_gets_one_line_in_its_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch.compiler.reset()
    monkeypatch.setattr(aotlens.pipeline, "build_joint", failing(UnsupportedError("a case of the test")))
    fn = torch.compile(masked, backend="aotlens", options={"backend": "eager"})
    with caplog.at_level(logging.WARNING, logger="aotlens"):
        for _ in range(3):
            fn(torch.ones(3), torch.ones(3, requires_grad=True))
    (record,) = (record for record in caplog.records if record.name == "aotlens.eager.fallback")
    assert record.getMessage().startswith("AL402: `masked` runs in eager at ")
    assert record.getMessage().endswith("a case of the test")


def test_a_backward_that_no_code_is_generated_for_runs_operator_by_operator() -> None:
    torch.compiler.reset()

    def only_forward(module: Any, inputs: list[Any]) -> Callable[..., Any]:
        if any(name.startswith("tangent") for name in (node.name for node in module.graph.nodes)):
            raise RuntimeError("no code for a backward")
        return module.forward

    options = CompileOptions(backend=only_forward, strict=False)
    graphs: list[Any] = []
    expected = observed(masked)
    with observing(on_not_compiled=graphs.append):
        assert observed(torch.compile(masked, backend=dynamo_backend(options))) == expected
    (record,) = (graph.record() for graph in graphs)
    assert (record.cause, record.calls) == ("internal", 1)
    assert record.reason.startswith("only its forward is compiled; of the backward: RuntimeError: no code")


def test_a_mistake_in_what_was_asked_for_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    monkeypatch.setattr(aotlens.pipeline, "partition", failing(UnknownValueError("no value `hiden`")))
    with pytest.raises(Exception, match="no value `hiden`"):
        torch.compile(masked, backend=dynamo_backend(EAGER))(torch.ones(3), torch.ones(3, requires_grad=True))


def test_the_registered_backend_falls_back_by_default() -> None:
    seen: list[CompileOptions] = []

    def compiled(gm: Any, example_inputs: Any, options: CompileOptions) -> Any:
        seen.append(options)
        return gm.forward

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aotlens.frontends.dynamo.compile_for_dynamo", compiled)
        graph = torch.fx.symbolic_trace(torch.nn.Identity())
        aotlens_backend(graph, [])
        aotlens_backend(graph, [], options={"strict": True})
    assert [options.strict for options in seen] == [False, True]


# In a session


def run(folder: Path, text: str, verify: bool = False) -> ScriptRun:
    torch.compiler.reset()
    script = folder / "script.py"
    script.write_text(text)
    return run_compiled(str(script), [], EAGER, verify)


TWO_PARTS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.rnn, self.head = nn.Linear(8, 16), nn.GRU(16, 16), nn.Linear(16, 4)
    def forward(self, x):
        h = self.body(x).relu()
        h, _ = self.rnn(h)
        return self.head(h)

net = torch.compile(Net())
net(torch.randn(4, 8)).sum().backward()
"""


def test_the_rest_of_a_function_that_dynamo_cannot_resume_is_listed(tmp_path: Path) -> None:
    ran = run(tmp_path, TWO_PARTS)
    assert ran.end.exit_code == 0
    (record,) = ran.not_compiled
    assert (record.name, record.cause, record.code) == ("Net", "rest of function", "AL405")
    assert record.span is not None
    assert record.span.line == 11
    assert "RNN, GRU, or LSTM" in record.reason
    assert ran.report().not_compiled == (record,)
    assert [found.code for found in ran.report().diagnostics] == ["AL405"]


def test_graph_breaks_and_what_was_not_called_are_listed(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import torch\n"
        "@torch.compile\ndef broken(x):\n    x = x.sin()\n    print(x.sum().item())\n    return x.cos()\n"
        "@torch.compile\ndef unused(x):\n    return x\n"
        "@torch.compile\ndef inner(x):\n    return x.exp()\n"
        "@torch.compile\ndef outer(x):\n    return inner(x) + 1\n"
        "@torch.compile\ndef plain(n):\n    return n + 1\n"
        "broken(torch.ones(2)); outer(torch.ones(2)); plain(3)\n",
    )
    found = [(record.name, record.cause, record.span and record.span.line) for record in ran.not_compiled]
    assert found == [
        ("unused", "not called", 7),
        ("plain", "no graph", 16),
        ("broken", "graph break", 5),  # item()
        ("broken after line 5", "graph break", 5),  # print()
    ]


LIBRARY_MODULES = """
import torch
from torch import nn

unused = torch.compile(nn.Sequential(nn.Linear(4, 4)))
norm = torch.compile(nn.Sequential(nn.BatchNorm1d(4, momentum=None)))
norm(torch.ones(2, 4))
double = torch.compile(lambda x: (
    x + 1,
    print("splits it"),
    x * 2,
))
double(torch.ones(2))
"""


def test_modules_of_a_library_and_lambdas_have_names_and_lines_of_the_script(tmp_path: Path) -> None:
    torch._dynamo.utils.clear_compilation_metrics()  # of the tests before
    ran = run(tmp_path, LIBRARY_MODULES)
    found = [(record.name, record.cause, record.span and record.span.line) for record in ran.not_compiled]
    assert found == [
        ("Sequential", "whole function", 7),  # float(num_batches_tracked) inside of the batch norm
        ("Sequential", "not called", 5),
        ("<lambda>", "graph break", 10),
    ]
    assert [target.name for target in ran.report().targets][-1] == "<lambda> after line 10"


SHARED_COMPILATIONS = """
import torch
from torch import nn

broken = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)))
after = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.GELU()))
both = torch.compile(nn.Sequential(nn.Linear(4, 3), nn.GELU()))
x = torch.ones(2, 4)
with torch.no_grad():
    both(x)
broken(x)
after(x), after(x)
both(x)
"""


def test_modules_that_dynamo_leaves_to_eager_after_a_break_of_another(tmp_path: Path) -> None:
    ran = run(tmp_path, SHARED_COMPILATIONS)
    lost = [record for record in ran.not_compiled if record.is_loss]
    assert [(record.cause, record.calls, record.span and record.span.line) for record in lost] == [
        ("whole function", 1, 11),
        ("whole function", 2, 6),
        ("some calls", 1, 7),
    ]
    assert "`Tensor.item()`" in lost[0].reason
    for record in lost[1:]:
        assert record.reason.startswith("Dynamo reuses what it compiled for another `Sequential`")
        assert "script.py:11)" in record.reason
    assert lost[2].reason.endswith("; 1 other call of it ran compiled")


NO_OPERATOR = """
import torch
from torch import nn

empty, after = torch.compile(nn.Identity()), torch.compile(nn.Sequential(nn.Linear(4, 4), nn.GELU()))
after(empty(torch.ones(2, 4)))
"""


def test_modules_after_one_without_operators(tmp_path: Path) -> None:
    ran = run(tmp_path, NO_OPERATOR)
    after, empty = ran.not_compiled
    assert (empty.name, empty.cause, empty.is_loss) == ("Identity", "no graph", False)
    assert (after.name, after.cause, after.is_loss) == ("Sequential", "whole function", True)
    assert "script.py:6), which holds no operator, Dynamo skips all modules of torch's own" in after.reason


MANY_MODULES = """
import torch
from torch import nn

torch._dynamo.config.recompile_limit = 2
modules = [torch.compile(nn.Sequential(nn.Linear(4, size), nn.GELU())) for size in (4, 5, 6, 7)]
for _ in range(3):
    for module in modules:
        module(torch.ones(2, 4))
"""


def test_modules_above_the_limit_that_all_modules_of_torch_share(tmp_path: Path) -> None:
    with torch._dynamo.config.patch(recompile_limit=torch._dynamo.config.recompile_limit):
        ran = run(tmp_path, MANY_MODULES)
    (record,) = ran.not_compiled
    assert (record.name, record.cause, record.calls) == ("Sequential", "recompile limit", 6)
    assert (record.span and record.span.line) == 6
    assert "share one limit of compilations (2, `torch._dynamo.config.recompile_limit`)" in record.reason


WRAPPERS = """
import torch
from torch import nn

class Wrapper(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)

for layers in ([nn.BatchNorm1d(4, momentum=None)], [nn.Linear(4, 4), nn.GELU()]):
    torch.compile(Wrapper(*layers))(torch.ones(2, 4))

@torch.compile
def compiled(x):
    return x.sin()

compiled(torch.ones(2))
"""


def test_a_module_of_which_nothing_is_compiled_is_more_than_a_break(tmp_path: Path) -> None:
    ran = run(tmp_path, WRAPPERS)
    found = [(record.name, record.cause, record.span and record.span.line) for record in ran.not_compiled]
    assert found == [("Wrapper", "whole function", 11)]


def test_a_method_of_a_module_is_what_is_compiled_and_not_its_forward(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import torch\n"
        "class Coder(torch.nn.Module):\n"
        "    def forward(self, x):\n        return self.decode(x).sin()\n"
        "    def decode(self, x):\n        return x * 2\n"
        "used, unused, whole = Coder(), Coder(), Coder()\n"
        "used.decode = torch.compile(used.decode)\n"
        "unused.decode = torch.compile(unused.decode)\n"
        "whole.compile()\n"
        "used(torch.ones(3))\n",
    )
    assert [target.qualname for target in ran.targets] == ["Coder.decode"]
    found = [(record.name, record.cause, record.span and record.span.line) for record in ran.not_compiled]
    assert found == [("decode", "not called", 9), ("Coder", "not called", 3)]


def test_what_a_library_compiles_while_it_is_imported_need_not_be_called(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "library_of_layers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import torch\n\n\ndef flex(x):\n    return x * 2\n\n\n"
        "class Layer:\n    compiled = torch.compile(flex)\n\n\n"
        "def prepare(function):\n    return torch.compile(function)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(package.parent)!r})\n"
        "import library_of_layers, torch\n"
        "def step(x):\n    return x + 1\n"
        "library_of_layers.prepare(step)\n"
        "torch.compile(lambda x: x.sin())(torch.ones(2))\n",
        encoding="utf-8",
    )
    ended = command("inspect", "--backend", "eager", "--format", "json", script, cwd=tmp_path)
    found = [(record.name, record.cause) for record in loads(ended.out).not_compiled]
    assert found == [("step", "not called")]


def test_only_the_default_backend_is_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran = run(
        tmp_path,
        "import torch\n"
        "def mine(gm, inputs):\n    print('mine'); return gm.forward\n"
        "f = torch.compile(lambda x: x.sin(), backend='eager')\n"
        "g = torch.compile(lambda x: x.cos(), backend=mine)\n"
        "h = torch.compile(lambda x: x.tan(), backend='inductor')\n"
        "x = torch.ones(2); f(x); g(x); h(x)\n",
    )
    assert capfd.readouterr().out == "mine\n"
    assert len(ran.targets) == 1
    found = [(record.cause, record.reason, record.span and record.span.line) for record in ran.not_compiled]
    assert found == [
        ("other backend", "the script chose the backend `eager`", 4),
        ("other backend", "the script chose the backend `mine`", 5),
    ]


def test_a_copy_of_what_was_passed_to_torch_compile_is_the_same_backend(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import copy, torch\n"
        "original = torch._dynamo.optimize\n"
        "def copying(*args, backend, **kwargs):\n"
        "    return original(*args, backend=copy.deepcopy(backend), **kwargs)\n"
        "torch._dynamo.optimize = copying\n"
        "def double(x):\n    return x * 2\n"
        "for _ in range(2):\n    torch.compile(double)(torch.ones(3))\n"
        "torch._dynamo.optimize = original\n",
    )
    assert ran.end.exit_code == 0
    assert [target.name for target in ran.targets] == ["double"]


SAVES_WHOLE_MODEL = """
import torch
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
x = torch.ones(2, 4)
expected = model(x)
torch.save(model, "model.pt")
loaded = torch.load("model.pt", weights_only=False)
print(torch.equal(loaded(x), expected))
"""


def test_a_compiled_model_can_be_saved_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(tmp_path, SAVES_WHOLE_MODEL)
    assert (ran.end.failure, capfd.readouterr().out) == (None, "True\n")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)  # without a session
    assert loaded(torch.ones(2, 4)).shape == (2, 4)


def test_passing_a_function_to_torch_compile_again_does_not_compile_it_again(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import torch\ndef double(x):\n    return x * 2\n"
        "for _ in range(4):\n    torch.compile(double)(torch.ones(3))\n",
    )
    assert [target.name for target in ran.targets] == ["double"]
    assert ran.not_compiled == ()


COMPILES_INSIDE = """
import torch
from torch._dynamo.utils import counters

def inner(x):
    return x * 2

@torch.compile
def outer(x):
    torch._dynamo.graph_break()
    return torch.compile(inner)(x) + 1

for _ in range(4):
    outer(torch.ones(3))
frames = sum(counters["frames"].values())
"""


def test_dynamo_does_not_look_into_our_torch_compile(tmp_path: Path) -> None:
    """transformers passes a function to `torch.compile` in each call of a compiled model."""
    plain = tmp_path / "plain.py"
    text = COMPILES_INSIDE.replace("@torch.compile", "@torch.compile(backend='eager')")
    plain.write_text(text + "print(frames)\n")
    ended = python(plain)  # a process that Inductor has compiled in counts other frames
    assert ended.code == 0, ended.err
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    ran = run(tmp_path, COMPILES_INSIDE + f"assert frames == {ended.out.strip()}, frames\n")
    assert ran.end.failure is None
    assert [record.cause for record in ran.not_compiled] == ["graph break"]


def test_calls_while_dynamo_is_off_are_listed(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import torch\n"
        "from torch.utils.flop_counter import FlopCounterMode\n"
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x.sin()\n"
        "net = torch.compile(Net())\n"
        "function = torch.compile(lambda x: x.cos())\n"
        "x = torch.ones(2)\n"
        "net(x)\n"
        "with torch.compiler.set_stance('force_eager'):\n    net(x); function(x)\n"
        "with FlopCounterMode(display=False):\n    function(x)\n",
    )
    assert ran.end.exit_code == 0
    net, function = sorted(ran.not_compiled, key=lambda record: record.name, reverse=True)
    assert (net.name, net.cause, net.calls, net.span and net.span.line) == ("Net", "some calls", 1, 6)
    stance = '`torch.compiler.set_stance("force_eager")` was in force; '
    assert net.reason == stance + "1 other call of it ran compiled"
    assert (function.name, function.cause, function.calls) == ("<lambda>", "whole function", 2)
    assert function.reason.startswith(stance + "a TorchDispatchMode was active")
    assert (function.span and function.span.line) == 7


def test_each_instance_of_a_class_is_judged_by_its_own_calls(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x.sin()\n"
        "    def encode(self, x):\n        return x.cos()\n"
        "class Part(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x.tan()\n"
        "class Whole(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.part, self.empty = torch.compile(Part()), torch.compile(torch.nn.Identity())\n"
        "    def forward(self, x):\n        return self.empty(self.part(x))\n"
        "x = torch.ones(2)\n"
        "called = torch.compile(Net())\n"
        "other = torch.compile(Net())\n"
        "linear, unused = torch.compile(torch.nn.Linear(2, 2)), torch.compile(torch.nn.Linear(2, 2))\n"
        "called(x), other.encode(x), linear(x)\n"
        "torch.compile(Whole())(x)\n",
    )
    found = [(record.name, record.cause, record.span and record.span.line) for record in ran.not_compiled]
    assert found == [("Net", "not called", 18), ("Linear", "not called", 19)]


def test_a_copy_of_a_compiled_module_is_judged_by_its_own_calls(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import copy, torch\n"
        "class Net(torch.nn.Module):\n"
        "    scale = 1.0\n"
        "    def forward(self, x):\n        return x.sin()\n"
        "net = torch.compile(Net())\n"
        "net(torch.ones(2))\n"
        "average, unused = copy.deepcopy(net), copy.deepcopy(net)\n"
        "with torch.compiler.set_stance('force_eager'):\n    average(torch.ones(2))\n",
    )
    (record,) = ran.not_compiled
    assert (record.name, record.cause, record.span and record.span.line) == ("Net", "whole function", 8)


def test_what_is_neither_a_function_nor_a_module_is_listed(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import functools, torch\n"
        "def broken(x, k):\n"
        "    for _ in range(1):\n"
        "        with open(__file__):\n            x = x * k\n"
        "    return x\n"
        "x = torch.ones(2)\n"
        "torch.compile(functools.partial(broken, k=2))(x)\n"
        "unused = torch.compile(torch.cos)\n"
        "torch.compile(torch.nn.functional.softmax)(x, dim=0)\n"
        "torch.compile(torch.jit.trace(torch.nn.Linear(2, 2), x))(x)\n",
    )
    found = [(record.name, record.cause, record.span and record.span.line) for record in ran.not_compiled]
    assert sorted(found) == [
        ("TopLevelTracedModule", "whole function", 11),
        ("broken", "whole function", 4),
        ("cos", "not called", 9),
    ]
    assert [target.name for target in ran.targets] == ["inner"]


def test_calls_that_raise_are_listed_with_what_raised(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import torch\n"
        "from torch import nn\n"
        "recurrent = torch.compile(nn.Sequential(nn.LSTM(4, 4)), fullgraph=True)\n"
        "class Net(nn.Module):\n"
        "    def forward(self, x):\n        return x @ x\n"
        "for module in (recurrent, torch.compile(Net())):\n"
        "    try:\n        module(torch.ones(2, 4))\n"
        "    except Exception:\n        pass\n",
    )
    recurrent, wrong = ran.not_compiled
    assert (recurrent.name, recurrent.cause) == ("Sequential", "whole function")
    assert "RNN, GRU, or LSTM" in recurrent.reason
    assert (wrong.name, wrong.cause) == ("Net", "no graph")
    assert wrong.reason == "each of its calls raised an error before a graph of it ran"


def test_what_is_compiled_already_can_be_compiled_again(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import torch\n"
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x.sin()\n"
        "function = torch.compile(torch.compile(lambda x: x.cos()))\n"
        "torch.compile(torch.compile(Net()))(torch.ones(2)), function(torch.ones(2))\n",
    )
    assert ran.end.exit_code == 0
    assert [target.name for target in ran.targets] == ["Net", "<lambda>"]
    assert ran.not_compiled == ()


def test_what_a_thread_of_the_script_compiles_is_collected(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "import threading, torch\n"
        "function = torch.compile(lambda x: x.cos())\n"
        "thread = threading.Thread(target=function, args=(torch.ones(2),))\n"
        "thread.start(); thread.join()\n",
        verify=True,
    )
    assert [target.name for target in ran.targets] == ["<lambda>"]
    assert [verdict and verdict.outcome for verdict in ran.verdicts] == ["equal"]
    assert ran.not_compiled == ()
