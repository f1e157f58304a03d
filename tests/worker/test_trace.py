"""Real traces through the real server: what is found, and what each kind of bad input says."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotlens.model.codec import decode
from aotlens.model.report import Report, Target
from aotlens.view.progress import phase_of
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import Answer, Progress, TraceOptions, TraceRequest
from tests.worker.limits import begun

LIMIT_S = 150.0


@pytest.fixture(scope="module")
def client() -> Iterator[WorkerClient]:
    with WorkerClient() as started:
        yield started


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script.py"


def trace(
    client: WorkerClient, script: Path, source: str, qualname: str | None = None, **more: object
) -> Answer:
    script.write_text(textwrap.dedent(source))
    job = client.submit(TraceRequest(str(script), qualname, **more))  # type: ignore[arg-type]
    return job.future.result(LIMIT_S)


def targets(answer: Answer) -> tuple[Target, ...]:
    assert answer.failure is None, answer.failure
    assert answer.report is not None
    return decode(answer.report).targets


def rows(answer: Answer) -> list[tuple[str, str, str, list[str]]]:
    return [
        (
            target.qualname,
            target.frontend,
            target.mode,
            [row.tensor.short() for row in target.inputs if row.tensor and row.kind == "UserInput"],
        )
        for target in targets(answer)
    ]


def failed(answer: Answer) -> tuple[str, str, int | None]:
    assert answer.failure is not None
    return answer.failure.kind, answer.failure.message, answer.failure.line


EXAMPLES = """\
    import torch

    # aotlens: example f32[8, 16], bf16[16, 4] grad
    def mixed(x, weight):
        return x.to(torch.bfloat16) @ weight

    class Block(torch.nn.Module):
        def __init__(self, width=4):
            super().__init__()
            self.linear = torch.nn.Linear(width, width)

        def forward(self, x):
            return self.linear(x)

    # aotlens: example Wide(8): f32[2, 8]
    class Wide(Block):
        pass

    print("imported")
    if __name__ == "__main__":
        raise SystemExit("ran")
"""


@pytest.mark.rotates
def test_examples_are_traced_and_nothing_else_runs(client: WorkerClient, script: Path) -> None:
    answer = trace(client, script, EXAMPLES)
    assert rows(answer) == [
        ("mixed", "direct", "training", ["f32[8, 16]", "bf16[16, 4]"]),
        ("Wide", "direct", "training", ["f32[2, 8]"]),
    ]
    assert answer.output == "imported\n"


def test_one_example_by_name(client: WorkerClient, script: Path) -> None:
    assert [row[0] for row in rows(trace(client, script, EXAMPLES, "mixed"))] == ["mixed"]


def test_the_decorator_is_the_comment(client: WorkerClient, script: Path) -> None:
    source = """\
        import aotlens

        @aotlens.example("f32[8, 16] grad", scale=2.0)
        def scaled(x, scale):
            return x * scale
    """
    assert rows(trace(client, script, source)) == [("scaled", "direct", "training", ["f32[8, 16]"])]


@pytest.mark.rotates
def test_a_dynamic_size(client: WorkerClient, script: Path) -> None:
    source = """\
        # aotlens: example f32[s0, 4]
        def doubled(x):
            return x * 2
    """
    (target,) = targets(trace(client, script, source))
    assert target.inputs[0].tensor is not None
    assert not isinstance(target.inputs[0].tensor.shape[0], int)


TRAINING = """\
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            return activate(self.linear(x))

    def activate(x):
        return x.relu()

    if __name__ == "__main__":
        model = Model()
        compiled = torch.compile(model)
        for step in range(1000):
            print("step", step)
            compiled(torch.randn(2, 4)).sum().backward()
"""


def test_a_training_script_is_stopped_when_it_repeats(client: WorkerClient, script: Path) -> None:
    answer = trace(client, script, TRAINING, options=TraceOptions(repeat_limit_s=0.0))
    assert [row[1:3] for row in rows(answer)] == [("dynamo", "training")]
    assert answer.output == "step 0\nstep 1\nstep 2\nstep 3\n"
    assert answer.stopped
    assert answer.report is not None
    assert "its targets only repeated" in str(answer.report["incomplete"])


def test_the_script_runs_on_after_a_target_is_traced(client: WorkerClient, script: Path) -> None:
    phases: list[str] = []

    def progressed(progress: Progress) -> None:
        kind = phase_of(progress.stage, progress.detail).kind
        phases.extend([kind] if phases[-1:] != [kind] else [])

    options = TraceOptions(repeat_limit_s=0.0)
    script.write_text(textwrap.dedent(TRAINING))
    request = TraceRequest(str(script), options=options, fresh=True)
    client.submit(request, progressed).future.result(LIMIT_S)
    assert phases == ["import", "run", "tracing", "run", "report"]


EVALUATION = """
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    net = torch.compile(model)
    for _ in range(5):
        net(torch.randn(8, 4)).sum().backward()
    model.eval()
    with torch.no_grad():
        net(torch.randn(8, 4))
"""


def test_an_evaluation_after_the_training_is_shown(client: WorkerClient, script: Path) -> None:
    answer = trace(client, script, EVALUATION)
    assert [row[1:3] for row in rows(answer)] == [("dynamo", "training"), ("dynamo", "inference")]
    assert answer.report is not None
    assert answer.report["incomplete"] is None


@pytest.mark.rotates
def test_to_the_end(client: WorkerClient, script: Path) -> None:
    answer = trace(client, script, TRAINING, options=TraceOptions(to_end=True))
    assert answer.output.endswith("step 999\n")
    assert not answer.stopped


@pytest.mark.rotates
@pytest.mark.parametrize(("name", "frontend"), [("Model", "dynamo"), ("activate", "direct")])
def test_a_name_without_example_is_captured_while_the_script_runs(
    client: WorkerClient, script: Path, name: str, frontend: str
) -> None:
    (row,) = rows(trace(client, script, TRAINING, name))
    assert (row[1], row[3]) == (frontend, ["f32[2, 4]"])


METHODS = """\
    import torch
    import aotlens

    class Block(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear = torch.nn.Linear(width, width)

        # aotlens: example Block(6): f32[3, 6]
        def forward(self, x):
            return self.linear(x)

        def twice(self, x):
            return self.halve(self(self(x)))

        @staticmethod
        def halve(x):
            return x / 2

    @aotlens.example("f32[5, 8]", construct="Wide(8)")
    class Wide(Block):
        pass

    if __name__ == "__main__":
        print(Block(4).twice(torch.ones(2, 4)).shape)
"""


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("Block", "f32[2, 4]"),
        ("Block.forward", "f32[3, 6]"),
        ("Block.twice", "f32[2, 4]"),
        ("Block.halve", "f32[2, 4]"),
        ("Wide", "f32[5, 8]"),
    ],
)
def test_methods_and_classes_by_name(client: WorkerClient, script: Path, name: str, sizes: str) -> None:
    reported = targets(trace(client, script, METHODS, name))
    parameters = [row.fqn for row in reported[0].inputs if row.kind == "Parameter"]
    prefix = "self." if name == "Block.twice" else ""
    expected = [] if name == "Block.halve" else [f"{prefix}linear.weight", f"{prefix}linear.bias"]
    assert (reported[0].qualname, parameters) == (name.removesuffix(".forward"), expected)
    assert [row.tensor.short() for row in reported[0].inputs if row.tensor and row.kind == "UserInput"] == [
        sizes
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "f = torch.compile(double)",
        "f = torch.compile(double, fullgraph=True, mode='reduce-overhead', options=None)",
        "f = torch.compile()(double)",
        "f = torch.compile(dynamic=False)(double)",
        "class M(torch.nn.Module):\n    forward = lambda self, x: x * 2\nf = M(); f.compile()",
        "import aotlens; f = aotlens.compile(double)",
    ],
)
def test_each_way_to_compile(client: WorkerClient, script: Path, statement: str) -> None:
    source = (
        f"import torch\ndef double(x):\n    return x * 2\n{statement}\nf(torch.ones(3, requires_grad=True))\n"
    )
    assert len(targets(trace(client, script, source))) == 1


def test_the_same_twice_is_answered_from_the_cache(client: WorkerClient, script: Path) -> None:
    import os

    script.write_text("# aotlens: example f32[2]\ndef f(x):\n    return x + 1\n")
    os.utime(script, (1, 1))
    first, second = (client.submit(TraceRequest(str(script))).future.result(LIMIT_S) for _ in range(2))
    assert (first.cached, second.cached, second.report == first.report) == (False, True, True)


# Bad input


def test_no_target(client: WorkerClient, script: Path) -> None:
    kind, message, _ = failed(trace(client, script, "print('done')\n"))
    assert kind == "no-target"
    assert message.startswith(f"{script} has no target: its run gave nothing to torch.compile")
    assert "# aotlens: example f32[8, 16]" in message


OTHER_BACKEND = """
    import torch
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 0
        def forward(self, x):
            self.step += 1
            return x * self.step
    compiled = torch.compile(Block(), backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
"""


def test_what_dynamo_did_for_another_backend_is_reported(client: WorkerClient, script: Path) -> None:
    answer = trace(client, script, OTHER_BACKEND)
    assert answer.failure is None
    report = decode(answer.report)
    assert report.targets == ()
    assert report.dynamo is not None
    (block,) = report.dynamo.functions
    assert (block.qualname, len(block.compilations)) == ("Block.forward", 3)
    first = report.diagnostics[0]
    assert (first.code, first.severity) == ("AL905", "warning")
    assert "the script chose another backend for `Block`, which aotlens does not replace; to" in first.message


@pytest.mark.parametrize("name", ["Block", "Block.forward"])
def test_a_named_target_is_compiled_whatever_its_backend(
    client: WorkerClient, script: Path, name: str
) -> None:
    answer = trace(client, script, OTHER_BACKEND, name)
    assert {(kind, qualname) for qualname, kind, *_ in rows(answer)} == {("dynamo", "Block.forward")}


def test_a_module_is_compiled_where_its_forward_is_named(client: WorkerClient, script: Path) -> None:
    answer = trace(client, script, OTHER_BACKEND.replace(', backend="eager"', ""), "Block.forward")
    assert {(kind, qualname) for qualname, kind, *_ in rows(answer)} == {("dynamo", "Block.forward")}


def test_a_module_that_is_compiled_before_the_named_one_is_defined_stays_as_it_is(
    client: WorkerClient, script: Path
) -> None:
    earlier = """
        import torch
        class Earlier(torch.nn.Module):
            def forward(self, x):
                return x + 1
        earlier = torch.compile(Earlier(), backend="eager")
        def later(x):
            return earlier(x) * 2
        later(torch.ones(2))
    """
    assert [row[0] for row in rows(trace(client, script, earlier, "later"))] == ["later"]


def test_no_such_name(client: WorkerClient, script: Path) -> None:
    kind, message, _ = failed(trace(client, script, EXAMPLES, "mixd"))
    assert (kind, message) == ("no-target", f"{script} has no function or class `mixd`; it defines `mixed`")


def test_a_lambda_by_its_name(client: WorkerClient, script: Path) -> None:
    kind, message, _ = failed(trace(client, script, "twice = lambda x: x * 2\n", "twice"))
    assert kind == "no-target"
    assert message.startswith(f"{script}:1: `twice` is a lambda, which has no name to trace it by; write")
    assert message.endswith("`def twice(x): return x * 2`")


def test_a_name_that_the_script_never_calls(client: WorkerClient, script: Path) -> None:
    kind, message, _ = failed(trace(client, script, "def unused(x):\n    return x\n", "unused"))
    assert kind == "no-target"
    assert message.startswith(f"`unused` was not called while {script} ran; write an example")


def test_bad_example(client: WorkerClient, script: Path) -> None:
    kind, message, line = failed(
        trace(client, script, "# aotlens: example f33[2]\ndef f(x):\n    return x\n")
    )
    assert (kind, line) == ("bad-example", 1)
    assert message.startswith(f"{script}:1:20: bad example `f33[2]`: unknown dtype `f33`")


def test_an_example_that_does_not_fit(client: WorkerClient, script: Path) -> None:
    source = "# aotlens: example f32[2]\ndef f(x, y):\n    return x\n"
    assert failed(trace(client, script, source)) == (
        "bad-example",
        f"{script}:1: the example does not fit `f`: missing a required argument: 'y'",
        1,
    )


def test_the_output_has_the_traceback_of_an_example_that_failed_beside_others(
    client: WorkerClient, script: Path
) -> None:
    source = (
        "# aotlens: example f32[2]\ndef f(x):\n    raise ValueError('no')\n\n"
        "# aotlens: example f32[2]\ndef g(x):\n    return x + 1\n"
    )
    answer = trace(client, script, source)
    assert answer.failure is None
    assert f'File "{script}", line 3, in f' in answer.output
    assert answer.output.rstrip().endswith("ValueError: no")


@pytest.mark.rotates
def test_data_dependent_control_flow_names_the_line(client: WorkerClient, script: Path) -> None:
    source = "# aotlens: example f32[2]\ndef f(x):\n    if x.sum() > 0:\n        return x\n    return -x\n"
    answer = trace(client, script, source)
    kind, message, line = failed(answer)
    assert (kind, line) == ("unsupported", 3)
    assert "depends on data" in message
    assert f"{script}:3" in message
    assert answer.failure is not None
    assert answer.failure.traceback == (
        f'Traceback (most recent call last):\n  File "{script}", line 3, in f\n    if x.sum() > 0:\n'
        "       ^^^^^^^^^^^\n"
    )


def test_the_users_mistake_in_a_traced_function(client: WorkerClient, script: Path) -> None:
    source = "# aotlens: example f32[2, 3], f32[4, 5]\ndef f(x, y):\n    return x @ y\n"
    answer = trace(client, script, source)
    kind, _, line = failed(answer)
    assert (kind, line) == ("user", 3)
    assert answer.failure is not None
    assert f'File "{script}", line 3, in f' in answer.failure.traceback
    assert "aotlens" not in answer.failure.traceback.replace(str(script), "")


def test_one_bad_target_leaves_the_others(client: WorkerClient, script: Path) -> None:
    source = """\
        # aotlens: example f32[2]
        def good(x):
            return x + 1

        # aotlens: example f32[2]
        def bad(x):
            raise ValueError("no")

        # aotlens: example f33[2]
        def worse(x):
            return x
    """
    answer = trace(client, script, source)
    assert answer.failure is None
    assert answer.report is not None
    report: Report = decode(answer.report)
    assert [target.qualname for target in report.targets] == ["good"]
    assert [diagnostic.message for diagnostic in report.diagnostics][:1] == [
        f"{script}:7 raised ValueError: no"
    ]
    assert [diagnostic.code for diagnostic in report.diagnostics][1:] == ["AL906"]


def test_what_was_captured_before_a_script_ended_itself(client: WorkerClient, script: Path) -> None:
    source = "import torch\nf = torch.compile(lambda x: x + 1)\nf(torch.ones(2))\nraise SystemExit(3)\n"
    answer = trace(client, script, source)
    assert answer.failure is None
    assert answer.report is not None
    assert len(decode(answer.report).targets) == 1


@pytest.mark.rotates
def test_endless_loop_in_a_traced_function(client: WorkerClient, script: Path) -> None:
    source = "# aotlens: example f32[2]\ndef f(x):\n    while True:\n        x = x + 1\n"
    answer, _ = begun(lambda limit_s: trace(client, script, source, time_limit_s=limit_s))
    kind, message, line = failed(answer)
    assert (kind, line in (3, 4)) == ("timeout", True)
    assert f"it was at {script}:{line} in `f`" in message


def test_threads_work_in_the_child(client: WorkerClient, script: Path) -> None:
    """A pool that the server had started would hang here."""
    source = """\
        import torch
        torch.set_num_threads(2)
        x = torch.randn(600, 600, requires_grad=True)
        (x @ x).sin().sum().backward()
        f = torch.compile(lambda x: (x @ x).exp())
        f(x).sum().backward()
        print(torch.get_num_threads())
    """
    answer = trace(client, script, source, time_limit_s=100.0)
    assert (len(targets(answer)), answer.output) == (1, "2\n")


def test_children_do_not_share_what_they_import(client: WorkerClient, script: Path) -> None:
    source = """\
        import sys, torch
        print(hasattr(torch, "left_behind"))
        torch.left_behind = True
        # aotlens: example f32[2]
        def f(x):
            return x
    """
    outputs = [trace(client, script, source, fresh=True).output for _ in range(2)]
    assert outputs == ["False\n", "False\n"]


def test_the_server_says_what_it_runs(client: WorkerClient, script: Path) -> None:
    import torch

    trace(client, script, "")
    assert client.hello is not None
    assert client.hello.torch == torch.__version__
    assert client.hello.python == sys.version.split()[0]
