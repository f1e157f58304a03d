"""Each command as a process, on small scripts: what it prints where, and its exit code."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from tests.command import ROOT, Ended, aotlens, forked, python, without_carets

SCRIPT = """\
import sys
import torch

def scale(x, weight):
    return torch.relu(x @ weight)

# aotlens: example f32[4] grad, f32[4]
def keep_total(x, total):
    total.add_(x.detach())
    return x * total

def main():
    torch.manual_seed(0)
    print(sys.argv, __name__, sys.path[0] == sys.argv[0].rpartition("/")[0])
    compiled = torch.compile(scale)
    weight = torch.randn(3, 3, requires_grad=True)
    for step in range(5):
        loss = compiled(torch.randn(2, 3), weight).sum()
        loss.backward()
        print("step", step, f"{loss.item():.3f}", f"{weight.grad.sum():.3f}")

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scripts") / "small.py"
    path.write_text(SCRIPT)
    return path


def plain(script: Path, *words: str) -> Ended:
    """`python SCRIPT` with Dynamo's own eager backend, so that no C++ is compiled."""
    source = script.read_text().replace("torch.compile(scale)", 'torch.compile(scale, backend="eager")')
    folder = script.parent / "plain"
    folder.mkdir(exist_ok=True)
    copy = folder / script.name
    copy.write_text(source)
    ended = forked(copy, *words)
    return Ended(ended.code, ended.out.replace(str(copy), str(script)), ended.err)


@pytest.mark.rotates
def test_run_prints_what_python_prints_and_closes_on_stderr(script: Path) -> None:
    ended = aotlens("run", "--backend", "eager", script, "--verify", "-x", "--dynamic", "--", "y")
    assert (ended.code, ended.out) == (0, plain(script, "-x", "--dynamic", "--", "y").out)
    lines = ended.err.splitlines()
    assert lines[0].startswith("aotlens: 1 function, compiled in ")
    assert "scale" in lines[1]
    assert "equal: 1 value, 1 gradient" in ended.err


@pytest.mark.rotates
def test_run_with_inductor(script: Path) -> None:
    ended = aotlens("run", script, "--", "--verify")
    assert (ended.code, ended.out) == (0, plain(script, "--verify").out)
    assert "equal" not in ended.err


def test_run_writes_the_report(script: Path, tmp_path: Path) -> None:
    ended = aotlens("run", "--backend", "eager", "--report", tmp_path / "report.json", script)
    assert ended.code == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["command"], [target["name"] for target in report["targets"]]) == (
        f"run {script}",
        ["scale"],
    )


NOTHING_COMPILED = "aotlens: nothing was compiled: s.py passes nothing to torch.compile or aotlens.compile\n"
RAISED = """\
Traceback (most recent call last):
  File "s.py", line 3, in <module>
    f()
  File "s.py", line 2, in f
    return 1 / 0
ZeroDivisionError: division by zero
aotlens: error: s.py:2 raised ZeroDivisionError: division by zero
"""


@pytest.mark.parametrize(
    ("source", "code", "out", "err"),
    [
        ("import sys\nprint('a')\nsys.exit(3)\n", 3, "a\n", ""),
        ("import sys\nsys.exit('no way')\n", 1, "", "no way\n"),
        (
            "def f():\n    return 1 / 0\nf()\n",
            2,
            "",
            RAISED,
        ),
        (
            "print('ran')\n",
            0,
            "ran\n",
            NOTHING_COMPILED,
        ),
    ],
    ids=["exit code", "exit message", "exception", "no target"],
)
def test_run_of_scripts_that_compile_nothing(
    tmp_path: Path, source: str, code: int, out: str, err: str
) -> None:
    (tmp_path / "s.py").write_text(source)
    ended = aotlens("run", "s.py", cwd=tmp_path)
    assert replace(ended, err=without_carets(ended.err)) == Ended(code, out, err)


@pytest.mark.rotates
def test_inspect_as_text_and_the_scripts_output_on_stderr(script: Path) -> None:
    ended = aotlens("inspect", script)
    assert ended.code == 0
    assert sum(line.startswith("── ") for line in ended.out.splitlines()) == 2
    assert "total.add_(x.detach())" in ended.out
    assert "step 0" in ended.err
    assert "step 0" not in ended.out


def test_inspect_as_json_follows_the_schema(script: Path, tmp_path: Path) -> None:
    ended = aotlens("inspect", f"{script}::keep_total", "--format", "json", "-o", tmp_path / "report.json")
    assert ended == Ended(0, "", "")
    report = json.loads((tmp_path / "report.json").read_text())
    jsonschema.validate(report, json.loads((ROOT / "docs" / "report.schema.json").read_text()))
    (target,) = report["targets"]
    assert [(row["name"], row["mutation_type"]) for row in target["inputs"]] == [
        ("x", "not_mutated"),
        ("total", "mutated_in_graph"),
    ]


def test_inspect_one_stage(script: Path) -> None:
    ended = aotlens("inspect", f"{script}::keep_total", "--stage", "joint")
    assert (ended.code, "aten" in ended.out) == (0, True)


def test_inspect_of_an_unknown_stage(script: Path) -> None:
    ended = aotlens("inspect", f"{script}::keep_total", "--stage", "jiont")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "aotlens: error: no stage 'jiont'; did you mean joint? there is captured, desugared, functional,"
        " decomposed, joint, joint_passes, forward, backward, inference, wrapper, kernels, cuda-graph, or the"
        " difference of two, as captured..functional\n"
    )


def test_inspect_of_a_script_that_fails(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import sys\nprint('before')\nsys.exit(3)\n")
    ended = aotlens("inspect", "s.py", cwd=tmp_path)
    assert replace(ended, err=without_carets(ended.err)) == Ended(
        2,
        "",
        "before\n"
        'Traceback (most recent call last):\n  File "s.py", line 3, in <module>\n    sys.exit(3)\n'
        "SystemExit: 3\n"
        "aotlens: error: s.py:3 called sys.exit with code 3 before the trace was done\n",
    )


def test_a_script_that_asks_for_our_backend_is_compiled_by_it(tmp_path: Path) -> None:
    path = tmp_path / "ours.py"
    path.write_text(
        "import torch\n\n\n@torch.compile(backend='aotlens', options={'policy': 'default'})\n"
        "def f(x):\n    return x.sin() * x\n\n\nf(torch.ones(3, requires_grad=True)).sum().backward()\n"
    )
    report = json.loads(aotlens("inspect", str(path), "--format", "json").out)
    assert [target["qualname"] for target in report["targets"]] == ["f"]
    assert report["targets"][0]["partition"]["policy"] == "default"
    assert [diagnostic["code"] for diagnostic in report["diagnostics"]] == []


def test_inspect_passes_arguments_to_the_script(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import sys\nprint(sys.argv)\n")
    ended = aotlens("inspect", "s.py", "--dynamic", "--", "--format", "x", cwd=tmp_path)
    assert ended.err.startswith("['s.py', '--format', 'x']\n")


def test_a_script_finds_its_own_folder_after_it_went_to_another(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import os\nos.chdir('/')\nprint(os.path.dirname(__file__))\n")
    ended = aotlens("run", "s.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, f"{tmp_path}\n")


@pytest.mark.rotates
def test_an_exported_module_runs_without_aotlens(script: Path, tmp_path: Path) -> None:
    ended = aotlens("export", f"{script}::keep_total", "-o", tmp_path / "out.py")
    assert (ended.code, ended.out, ended.err) == (0, "", f"wrote {tmp_path}/out.py: keep_total, training\n")
    program = f"""
import sys, torch
sys.path[:] = [{str(tmp_path)!r}] + [path for path in sys.path if {str(ROOT)!r} != path]
sys.modules["aotlens"] = None
import out
x, total = torch.ones(4, requires_grad=True), torch.ones(4)
result = out.call(x, total)
result.sum().backward()
print(result.tolist(), total.tolist(), x.grad.tolist())
"""
    ended = python("-c", program)
    assert (ended.out, ended.code) == (f"{[2.0] * 4} {[2.0] * 4} {[2.0] * 4}\n", 0), ended.err


@pytest.mark.rotates
def test_export_needs_one_target(script: Path) -> None:
    ended = aotlens("export", script)
    assert (ended.code, ended.out) == (2, "")
    assert f"{script} has 2 captures, and a module contains one; name one with SCRIPT::name" in ended.err
    assert "\n  1  scale(f32[2, 3], f32[3, 3])\n  2  keep_total(f32[4], f32[4])\n" in ended.err


def test_export_for_a_gpu_that_is_not_there_says_where_it_is_done() -> None:
    ended = aotlens("export", "s.py::f", "--gpu", "h100")
    assert (ended.code, ended.out) == (2, "")
    assert "run `aotlens export s.py::f --backend inductor` there" in ended.err


def test_verify(script: Path) -> None:
    ended = aotlens("verify", script, "--backend", "eager")
    assert ended.code == 0
    assert [row.split(":")[0] for row in ended.out.splitlines()] == [
        "equal         scale",
        "equal         keep_total",
    ]
    assert "step 0" in ended.err


def test_doctor() -> None:
    ended = aotlens("doctor")
    assert (ended.code, ended.err) == (0, "")
    assert f"python         {sys.version.split()[0]}" in ended.out
    assert "sm_90          H100 SXM, H100 PCIe" in ended.out
    assert "cache          off: AOTLENS_CACHE_DIR is empty" in ended.out
