"""`aotlens fit SNAPSHOT.pickle [SCRIPT ARGS…]`: who held GPU memory, compared with the prediction.

Invariant: the snapshot runs nothing; a script that is named runs as in `aotlens fit SCRIPT`.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from aotlens.cli.targets import check_script
from aotlens.cli.terminal import say, show_failure, write_data
from aotlens.errors import UserError
from aotlens.fit.failure_match import FailureMatch, failing_devices, match_failure
from aotlens.fit.failure_text import match_lines
from aotlens.fit.job import FIT_CHILD, FitJob
from aotlens.fit.snapshot import MemorySnapshot
from aotlens.fit.snapshot_child import read_in_child
from aotlens.fit.snapshot_text import snapshot_lines
from aotlens.model.fit import Fit
from aotlens.session.why.observation import observe_script

__all__ = ["show_snapshot"]

SCHEMA = "aotlens.snapshot/1"
ANY_GPU = "h100"
"""The emulated GPU of a script that uses one, where none is named: a snapshot does not say which it was."""


def show_snapshot(arguments: argparse.Namespace) -> int:
    """Print the devices of a snapshot and, with a script, how the prediction explains them."""
    if arguments.format == "html":
        raise UserError("a memory snapshot is shown as text or JSON: use --format text or json")
    devices = read_in_child(arguments.script)
    if not devices:
        raise UserError(f"{arguments.script}: it shows no memory on any device, and no failed allocation")
    matches: tuple[FailureMatch, ...] = ()
    if arguments.argv:
        script, *argv = arguments.argv
        fit = _predicted(script, argv, arguments)
        matches = tuple(match_failure(device, fit, script) for device in failing_devices(devices))
    _show(devices, matches, arguments)
    return 0


def _predicted(script: str, argv: Sequence[str], arguments: argparse.Namespace) -> Fit:
    """Run the script; raises UserError if it fails or makes no step."""
    check_script(script)
    job = FitJob(script, tuple(argv), arguments.gpu or ANY_GPU, arguments.real, arguments.to_end)
    observed = observe_script(job, FIT_CHILD)
    fit = None if observed.report is None else observed.report.fit
    if observed.failure is not None:
        show_failure(observed.failure.message, observed.failure.traceback, observed.failure.exit_code)
    if fit is None or not fit.curve or observed.failure is not None:
        raise UserError(f"{script} has no prediction to compare with: it fails, or allocates nothing")
    if observed.report is not None and observed.report.incomplete is not None:
        say(f"aotlens: warning: the prediction is incomplete: {observed.report.incomplete}")
    return fit


def _show(
    devices: Sequence[MemorySnapshot], matches: Sequence[FailureMatch], arguments: argparse.Namespace
) -> None:
    if arguments.format == "json":
        data = {
            "schema": SCHEMA,
            "devices": [asdict(device) for device in devices],
            "matches": [asdict(match) for match in matches],
        }
        write_data(json.dumps(data, indent=2, ensure_ascii=False) + "\n", arguments.output)
        return
    parts = ["\n".join(snapshot_lines(device, is_full=arguments.full)) for device in devices]
    parts += ["\n".join(match_lines(match, is_full=arguments.full)) for match in matches]
    write_data("\n\n".join(parts) + "\n", arguments.output)
