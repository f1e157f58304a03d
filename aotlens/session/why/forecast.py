"""Forecast a script in the child that runs it, from its first calls or from its examples.

Invariant: a script with example comments is imported, and its main part does not run.  Any other script runs
until everything that it compiles was called once.
"""

import platform
from collections.abc import Sequence
from contextlib import suppress

import torch

from aotlens.errors import TargetError
from aotlens.forecast.forecast import Budget
from aotlens.forecast.probe import Probe, ScriptIsDone, names_of, with_eager_backend
from aotlens.forecast.recorded_call import RecordedCall
from aotlens.forecast.vary import parse_options
from aotlens.model.dynamo import Dynamo
from aotlens.model.report import Report
from aotlens.session.run import ScriptEnd, run_to_end
from aotlens.session.script.source import Script, load_script, new_module, run_script
from aotlens.session.script.targets import Call, example_calls
from aotlens.worker.targets import StaticTarget, find_targets

__all__ = ["forecast_script"]


def forecast_script(
    path: str, argv: Sequence[str], variations: Sequence[str], seconds: float
) -> tuple[ScriptEnd, Report]:
    """Return how the script ended, and the effect of other arguments on what it compiles."""
    probe = Probe(parse_options(variations), Budget(seconds))

    def work() -> None:
        script = load_script(path)
        targets = _with_examples(script)
        if targets:
            _from_examples(script, targets, probe)
        else:
            _from_calls(script, argv, probe)
        if probe.asked and not probe.forecasts:
            raise TargetError(_nothing_varies(probe))

    end = run_to_end(work, path)
    dynamo = Dynamo(forecasts=tuple(probe.forecasts)) if probe.forecasts else None
    versions = (torch.__version__, platform.python_version())
    report = Report(*versions, f"why {path}", (), (), (), dynamo=dynamo, incomplete=end.incomplete)
    return end, report


def _with_examples(script: Script) -> list[StaticTarget]:
    targets = find_targets(script.source, script.path)
    return [target for target in targets if target.kind != "call" and target.examples]


def _from_calls(script: Script, argv: Sequence[str], probe: Probe) -> None:
    with probe.probing(), suppress(ScriptIsDone):
        run_script(script, new_module(script, "__main__"), argv)


def _from_examples(script: Script, targets: Sequence[StaticTarget], probe: Probe) -> None:
    module = new_module(script, script.name)
    run_script(script, module)
    with with_eager_backend():
        for target in targets:
            for call in example_calls(module, target):
                probe.forecast(_recorded(call))


def _recorded(call: Call) -> RecordedCall:
    function = call.function
    called = function.__call__ if isinstance(function, torch.nn.Module) else function
    return RecordedCall(called, torch.compile(function), call.args, call.kwargs)


def _nothing_varies(probe: Probe) -> str:
    names = names_of(probe.asked)
    if probe.without:
        return f"nothing that is compiled takes {names}: {'; '.join(dict.fromkeys(probe.without))}"
    return f"nothing can vary {names}: the script calls nothing that it passes to torch.compile"
