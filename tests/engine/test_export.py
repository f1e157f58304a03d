"""The module text is all that is needed: written to files and run where aotlens cannot be imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from aotlens.errors import AotlensError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.verify.first_call import observe_alone
from tests.engine.checking import prepared
from tests.programs import Program, untagged

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns

ROOT = Path(__file__).parents[2]


def source_of(program: Program) -> str | None:
    """The module text; None for what is refused, fails in eager, or needs objects of the user's own."""
    with program.context():
        eager, given = prepared(program)
        observed = observe_alone(eager)
        if observed.failure is not None or observed.backward_failure is not None:
            return None
        try:
            compiled = compile_direct(given.fn, given.args, {}, CompileOptions(backend="eager"))
        except AotlensError:  # what must work is judged in test_programs
            return None
    return None if compiled.module.text.bound else compiled.source


def test_exported_modules_run_with_torch_alone(tmp_path: Path) -> None:
    names: list[str] = []
    for program in untagged("grid"):
        source = source_of(program)
        if source is not None:
            (tmp_path / f"{len(names)}.py").write_text(source)
            names.append(program.name)
    (tmp_path / "names.txt").write_text("\n".join(names))

    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.standalone", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)

    assert result.returncode == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if line.startswith("differs: ")] == []
    assert len(names) > 300
