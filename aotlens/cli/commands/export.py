"""`aotlens export TARGET`: the module text that runs, as a file that needs no aotlens."""

import argparse

from aotlens.cli.commands.inspect import TIME_LIMIT_S
from aotlens.cli.options import count, output_file
from aotlens.cli.targets import TargetName, add_policy, add_target, policy_of
from aotlens.cli.terminal import say, show_failure, write_data
from aotlens.cli.trace_target import trace_target
from aotlens.errors import InternalError, TargetError, UserError
from aotlens.model.report import Target
from aotlens.options import BACKENDS
from aotlens.view.functions import capture_name
from aotlens.worker.protocol import TraceOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "-o", dest="output", metavar="FILE", type=output_file, help="write to this file instead of stdout"
    )
    parser.add_argument(
        "--capture", metavar="N", type=count, help="which capture, counted from 1, if there are several"
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="eager",
        help="eager (the default): the graphs call torch's operators, and the module needs only torch;"
        " inductor: Inductor's kernels, compiled on import by a C++ compiler or, for a GPU, by Triton",
    )
    parser.add_argument("--dynamic", action="store_true", help="trace with symbolic sizes")
    add_policy(parser)
    parser.add_argument("--gpu", help=argparse.SUPPRESS)  # raises UserError with a solution


def run(arguments: argparse.Namespace) -> int:
    _check_no_gpu(arguments.target, arguments.gpu)
    options = TraceOptions(arguments.backend, arguments.dynamic, str(policy_of(arguments)), standalone=True)
    traced = trace_target(arguments.target, arguments.argv, options, TIME_LIMIT_S, fresh=True)
    if traced.failure is not None:
        return show_failure(traced.failure.message, traced.failure.traceback, traced.failure.exit_code)
    targets = traced.report.targets if traced.report is not None else ()
    target = _single(targets, arguments.target, arguments.capture)
    if target.wrapper is None:
        raise InternalError(f"the report of {arguments.target} has no module text")
    write_data(target.wrapper.source, arguments.output)
    if arguments.output is not None:
        say(f"wrote {arguments.output}: {target.name}, {target.mode}")
    return 0


def _check_no_gpu(target: TargetName, gpu: str | None) -> None:
    """Raise UserError: Inductor chooses kernels by running them, and the module could not be tested here."""
    if gpu is not None:
        raise UserError(
            f"a module with kernels for {gpu} is written on a machine that has this GPU: run"
            f" `aotlens export {target} --backend inductor` there; here"
            f" `aotlens inspect {target} --gpu {gpu} --text triton` prints the kernels"
        )


def _single(targets: tuple[Target, ...], name: TargetName, capture: int | None) -> Target:
    """Return the target.  Raises TargetError if the name does not identify one capture."""
    if capture is not None:
        if not 1 <= capture <= len(targets):
            raise TargetError(f"{name} has {len(targets)} captures; --capture {capture} is none of them")
        return targets[capture - 1]
    if len(targets) == 1:
        return targets[0]
    rows = "".join(f"\n  {number}  {capture_name(target)}" for number, target in enumerate(targets, start=1))
    hint = "name one with SCRIPT::name, or choose by --capture N"
    raise TargetError(f"{name} has {len(targets)} captures, and a module contains one; {hint}:{rows}")
