"""Some programs of the corpus under `aotlens run --verify`, beside eager; `make corpus` runs all of them."""

import json
from pathlib import Path

import pytest

from aotlens.model.codec import loads
from corpus.output import Difference, compare_output
from corpus.program import PROGRAMS, read_program
from tests.command import ROOT, forked

RECIPES = {
    "argparse_main": "eager",
    "autograd_function": "eager",
    "checkpoint_around_block": "inductor",
    "checkpoint_inside_region": "eager",
    "checkpoint_nested": "eager",
    "compiled_train_step": "eager",
    "fullgraph": "eager",
    "func_ensemble": "eager",
    "gradient_clipping": "eager",
    "kv_cache_decode": "eager",
    "mark_dynamic": "inductor",
    "regional_compilation": "eager",
    "variable_length_batches": "eager",
}
"""With the backend: Inductor takes longer, and is tried on two."""


@pytest.mark.rotates
@pytest.mark.parametrize("name", RECIPES)
def test_runs_as_in_eager(name: str, tmp_path: Path) -> None:
    program = read_program(PROGRAMS / "recipes" / f"{name}.py")
    report = tmp_path / "report.json"
    driver = Path(__file__).parent / "both_ways.py"
    ended = forked(driver, RECIPES[name], report, program.path, *program.args, cwd=ROOT)
    assert ended.code == 0, ended.err
    outcome = json.loads(ended.out)
    eager, ours = (tuple(outcome[way]["lines"]) for way in ("eager", "ours"))
    assert compare_output(ours, eager, program.tolerance) == Difference()
    assert len(eager) == 1 + (program.steps or 0)
    assert outcome["ours"]["exit_code"] == outcome["eager"]["exit_code"] == 0, ended.err
    written = loads(report.read_text())
    assert written.targets
    assert [entry for entry in written.not_compiled if entry.is_graph] == []
