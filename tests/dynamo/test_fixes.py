"""Every kind of fix: the edit, and that only edits which keep the results of eager are offered."""

import contextlib
import io
import random
import re
import warnings
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from pathlib import Path

import pytest
import torch

from aotlens.diagnostics.attach_fixes import tried_words
from aotlens.dynamo import spans
from aotlens.fixes.outcomes import SearchResult
from aotlens.fixes.search import Limits
from aotlens.session.trials.child import run_job
from aotlens.session.trials.fix_trials import FixTrials, TrialJob, TrialRun, load_trial_run
from tests.conftest import Golden
from tests.dynamo.programs_fixes import PASSING, REJECTED

PATH = "script.py"
_ADDRESS = re.compile(r"0x[0-9a-f]+")


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for the script; torch's settings and random state are put back."""
    monkeypatch.chdir(tmp_path)
    state, random_state = torch.get_rng_state(), random.getstate()
    config = torch._dynamo.config
    settings = {
        name: getattr(config, name)
        for name in ("allow_unspec_int_on_nn_module", "force_nn_module_property_static_shapes")
    }
    with config.patch(settings):  # the edited scripts set them
        yield
    torch.set_rng_state(state)
    random.setstate(random_state)
    torch._dynamo.reset()


def run_here(texts: Mapping[str, str], is_eager: bool) -> TrialRun:
    """A trial in this process, as its child runs it."""
    torch._dynamo.reset()
    for remembered in (spans._tree, spans._nodes, spans._decorated, spans.definition_at):
        remembered.cache_clear()  # a process of its own has read no other text
    printed = io.StringIO()
    with (
        torch._dynamo.config.patch(
            reorderable_logging_functions=set(),
            capture_scalar_outputs=False,
            capture_dynamic_output_shape_ops=False,
        ),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(printed),
    ):
        warnings.simplefilter("ignore")
        outcome = run_job(TrialJob(PATH, (), dict(texts), is_eager, "eager.pickle"))
    return load_trial_run(outcome, printed.getvalue())


def found(source: str, limits: Limits | None = None) -> SearchResult:
    Path(PATH).write_text(source)
    run_here({}, is_eager=True)
    first = run_here({}, is_eager=False)
    assert first.failure == ""
    assert first.dynamo is not None
    return FixTrials(PATH, run_here).find(first.dynamo, limits or Limits())


def described(source: str, result: SearchResult) -> str:
    """What passed with the diff, and what was rejected."""
    passed = [entry for entry in result.fixes if entry.passed]
    lines = [f"+ {entry.kind}: {entry.fix.title}" for entry in passed]
    for entry in passed if len(passed) > 1 else ():
        assert entry.outcome is not None
        lines.append(
            f"{entry.target}: {re.sub(', compiling takes.*', '', tried_words(entry, entry.outcome))}"
        )
    if result.together is not None:
        outcome = result.together
        lines.append(f"breaks {outcome.breaks_before} -> {outcome.breaks_after}")
        lines.append(f"compilations {outcome.compilations_before} -> {outcome.compilations_after}")
        lines.append(f"equal to eager: {outcome.compared}")
    rejected = (entry for entry in result.fixes if not entry.passed)
    lines += [f"- {entry.kind}: {entry.fix.title}: {entry.rejected}" for entry in rejected]
    after = result.texts.get(PATH, source)
    diff = unified_diff(source.splitlines(), after.splitlines(), lineterm="", n=0)
    return _ADDRESS.sub("0x…", "\n".join([*lines, "", *list(diff)[2:]]))


@pytest.mark.rotates
@pytest.mark.parametrize("name", PASSING)
def test_a_fix_passes(name: str, golden: Golden) -> None:
    result = found(PASSING[name])
    golden(f"fixes/{name}.txt", described(PASSING[name], result))
    assert any(entry.passed for entry in result.fixes)
    outcome = result.together
    assert outcome is not None
    before = outcome.breaks_before, outcome.compilations_before
    assert (outcome.breaks_after, outcome.compilations_after) != before


@pytest.mark.rotates
@pytest.mark.parametrize("name", REJECTED)
def test_an_edit_is_rejected(name: str, golden: Golden) -> None:
    result = found(REJECTED[name])
    golden(f"fixes/rejected_{name}.txt", described(REJECTED[name], result))
    assert result.texts == {}
    assert not any(entry.passed for entry in result.fixes)
    assert all(entry.rejected for entry in result.fixes)
