"""What is said of calls that the script has not made, from its first call alone."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from aotlens.forecast.vary import VariedName, VaryError, parse_options, parse_vary
from aotlens.model.codec import dumps, loads
from aotlens.model.dynamo import Dynamo
from aotlens.model.recompilations import ForecastAxis
from aotlens.render.text.why import why_text
from aotlens.session.why.forecast import forecast_script
from tests.conftest import Golden

SHAPES = Path(__file__).parent / "changing_shapes"
SECONDS = 120.0


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork of a process with threads, from Python 3.12 on
        yield
    torch._dynamo.reset()


def forecast(source: str, *asked: str) -> Dynamo:
    Path("script.py").write_text(source)
    end, report = forecast_script("script.py", (), asked, SECONDS)
    assert end.failure is None
    assert report.dynamo is not None
    return report.dynamo


def axis_of(source: str, *asked: str) -> ForecastAxis:
    """The one axis that is asked for."""
    (entry,) = forecast(source, *asked).forecasts
    (axis,) = entry.axes
    return axis


def compilations(axis: ForecastAxis) -> list[int]:
    return [axis.first_compilations, *(call.compilations for call in axis.calls)]


def script(body: str, call: str, *more: str) -> str:
    head = 'import torch\n\n\n@torch.compile(backend="aot_eager")\n'
    return "\n".join([head + body, "", call, *more, ""])


SCALED = script("def f(x, y, k=2):\n    return (x * y).sum(1) * k\n", "f(torch.ones(8, 4), torch.ones(8, 1))")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x.shape[0]=1,8,9", VariedName("size", "x", (1, 8, 9), 0)),
        ("batch['a'].shape[-1] = 4", VariedName("size", "batch['a']", (4,), -1)),
        ("batch=1,2", VariedName("shared size", "batch", (1, 2), 0)),
        ("x.dtype=torch.float64,bfloat16", VariedName("dtype", "x", ("float64", "bfloat16"))),
        ("k=3,None,'a',b", VariedName("value", "k", (3, None, "a", "b"))),
        ("no_grad", VariedName("mode", "no_grad", ("no_grad",))),
    ],
)
def test_an_option_is_read(text: str, expected: VariedName) -> None:
    assert parse_vary(text) == expected


def test_both_modes_of_a_module_are_one_option() -> None:
    options = parse_options(["train", "k=2", "no_grad", "eval", "k=3"])
    assert [(option.text, option.values) for option in options] == [
        ("train or eval", ("train", "eval")),
        ("k", (2,)),
        ("no_grad", ("no_grad",)),
        ("k", (3,)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "`x` has no values: write NAME=VALUE,VALUE or one of train, eval, grad, no_grad"),
        ("x.shape[0]=", "`x.shape[0]=` has no values: write NAME=VALUE,VALUE"),
        ("=1", "`=1` has no name: write NAME=VALUE,VALUE"),
        ("batch=one", "a size is a whole number, not `one`"),
    ],
)
def test_an_option_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(VaryError) as raised:
        parse_vary(text)
    assert str(raised.value) == message


@pytest.mark.rotates
def test_sizes_that_must_follow_change_too() -> None:
    axis = axis_of(SCALED, "x.shape[0]=9,1,12")
    assert axis.with_names == ("y.shape[0]",)
    assert compilations(axis) == [1, 1, 1, 0]
    assert [cause.new for cause in axis.failed] == ["9", "1"]
    assert [(remedy.kind, remedy.compilations) for remedy in axis.remedies] == [("mark_dynamic", 2)]


@pytest.mark.rotates
def test_what_fails_in_eager_is_no_call() -> None:
    axis = axis_of(SCALED, "x.shape[1]=5,4")
    assert compilations(axis) == [1, 1, 0]
    bad = axis_of(script("def f(x):\n    return x.view(2, -1)\n", "f(torch.ones(4))"), "x.shape[0]=6,7")
    assert (compilations(bad), bad.left_out) == ([1, 1], ("7",))


def test_a_number_may_be_a_tensor() -> None:
    axis = axis_of(script("def f(x, k):\n    return x + k\n", "f(torch.ones(4), 0.5)"), "k=1.5,2.5,3.5")
    assert compilations(axis)[:2] == [1, 1]
    assert [remedy.kind for remedy in axis.remedies] == ["tensor"]
    assert axis.remedies[0].compilations == 1


@pytest.mark.rotates
def test_options_are_combined() -> None:
    axis = axis_of(SCALED, "batch=8,9", "no_grad")
    assert [call.value for call in axis.calls] == ["8, no_grad", "9, no_grad"]
    assert [[cause.kind for cause in call.causes] for call in axis.calls] == [["mode"], ["size"]]


@pytest.mark.rotates
def test_the_training_loop_does_not_run() -> None:
    source = script(
        "def f(x):\n    return x * 2\n",
        "steps = 0",
        "try:",
        "    for _ in range(100):",
        "        steps += 1",
        "        f(torch.ones(4))",
        "finally:",
        "    open('steps', 'w').write(str(steps))",
    )
    forecast(source, "x.shape[0]=5")
    assert Path("steps").read_text() == "2"


@pytest.mark.rotates
def test_what_is_compiled_later_is_reached() -> None:
    source = script(
        "def f(x):\n    return x * 2\n",
        "g = torch.compile(lambda x: x + 1, backend='aot_eager')",
        "for _ in range(9):",
        "    g(f(torch.ones(4)))",
    )
    assert [entry.function for entry in forecast(source).forecasts] == ["f", "<lambda>"]


@pytest.mark.rotates
def test_examples_are_calls() -> None:
    source = (
        "import torch\n\n\n# aotlens: example f32[8, 4]\ndef f(x):\n    return x.relu()\n\n\n"
        "if __name__ == '__main__':\n    raise SystemExit('the main part runs')\n"
    )
    axis = axis_of(source, "x.shape[1]=5,6")
    assert compilations(axis) == [1, 1, 0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "z.shape[0]=1",
            "nothing that is compiled takes `z.shape[0]`: `f` is called without `z`; it takes x, y",
        ),
        ("x.dtype=float33", "nothing that is compiled takes `x.dtype`: torch has no dtype `float33`"),
        (
            "x.shape[2]=1",
            "nothing that is compiled takes `x.shape[2]`: `x` has 2 dimensions, so no size 2",
        ),
    ],
)
def test_a_name_that_no_call_has(asked: str, message: str) -> None:
    Path("script.py").write_text(SCALED)
    end, report = forecast_script("script.py", (), (asked,), SECONDS)
    assert end.failure is not None
    assert end.failure.message == message
    assert report.dynamo is None


@pytest.mark.rotates
@pytest.mark.parametrize("name", ["break_and_sizes", "warmup_counter", "threshold_on_size"])
def test_automatic(name: str, golden: Golden) -> None:
    """Everything that may vary, as `aotlens why --forecast` prints it."""
    end, report = forecast_script(str(SHAPES / f"{name}.py"), (), (), SECONDS)
    assert end.failure is None
    anywhere = loads(dumps(report).replace(str(SHAPES), "…"))  # before lines are broken by their length
    golden(f"forecast/{name}.txt", why_text(anywhere).replace("tests/dynamo/changing_shapes", "…"))


def names_in_the_table() -> Sequence[str]:
    page = Path(__file__).parents[2] / "docs" / "why.md"
    text = page.read_text(encoding="utf-8").partition("written by scripts/why/forecast_table.py")[2]
    rows = text.partition("<!-- end of the table -->")[0].splitlines()
    return [row.split("|")[1].strip() for row in rows if row.startswith("| ")][1:]


def test_the_table_has_every_script() -> None:
    assert names_in_the_table() == sorted(path.stem for path in SHAPES.glob("*.py"))
