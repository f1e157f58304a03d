"""The one command that tries everything on a machine with a GPU; its parts here are stand-ins."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "try_gpu.py"


@pytest.fixture
def trial() -> ModuleType:
    spec = importlib.util.spec_from_file_location("try_gpu", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["try_gpu"] = module  # its dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def test_a_part_that_fails_or_hangs_hides_none_of_the_others(
    trial: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = {
        "fails": "import sys; print('this is why'); sys.exit(3)",
        "hangs": "import time; time.sleep(60)",
        "fine": "print('we' + 'll')",
    }
    chosen = [
        trial.Part(name, (sys.executable, "-c", text), limit_s=0.3 if name == "hangs" else 60.0)
        for name, text in scripts.items()
    ]
    found = trial.run_all(chosen)
    assert [(done.name, done.code) for done in found] == [("fails", 3), ("hangs", None), ("fine", 0)]
    assert found[0].last_lines == ("this is why",)
    told = capsys.readouterr().err
    assert "this is why" in told
    assert "stopped at its time limit" in told
    assert "well" not in told


def test_what_is_tried_exists(trial: ModuleType) -> None:
    """Files and modules that its commands name."""
    root = SCRIPT.parents[1]
    for part in trial.parts("sm_90"):
        for word in part.command[1:]:
            if word.endswith(".py") or word.startswith("tests/"):
                assert (root / word).exists()
    modules = {part.command[2] for part in trial.parts("sm_90")}
    assert modules == {"aotlens", "benchmarks.gpu", "pytest"}
