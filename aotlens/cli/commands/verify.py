"""`aotlens verify TARGET`: compiled against eager, in this process."""

import argparse
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from aotlens.cli.options import output_file
from aotlens.cli.progress import compilations
from aotlens.cli.targets import (
    add_allow_unverified,
    add_compile_options,
    add_target,
    check_gpu,
    check_script,
    policy_of,
)
from aotlens.cli.terminal import show_failure, stdout_on_stderr, write_data

if TYPE_CHECKING:
    from aotlens.options import CompileOptions
    from aotlens.session.verify import OnMismatch
    from aotlens.verify.targets import Checked

WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_compile_options(parser, backend="inductor")
    add_allow_unverified(parser)
    parser.add_argument(
        "--minimise",
        metavar="FILE",
        type=output_file,
        help="write a small script that shows the first difference and exits with code 1",
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="compare the code for this GPU (h100, a100, sm_90, …), which need not be present: its kernels"
        " run in Triton's interpreter",
    )
    parser.add_argument(
        "--own-blocks",
        action="store_true",
        help="with --gpu: use the kernels' own block sizes, not larger ones that are interpreted faster",
    )


def run(arguments: argparse.Namespace) -> int:
    check_script(arguments.target.path)
    from aotlens.options import CompileOptions, Interpreted
    from aotlens.session.verify_targets import verify_targets  # imports torch
    from aotlens.view.verdicts import WORST_FIRST

    backend: str | Interpreted = arguments.backend
    if arguments.gpu is not None:
        check_gpu(arguments.gpu)
        backend = Interpreted(arguments.own_blocks)
    options = CompileOptions(backend, arguments.dynamic, policy_of(arguments), gpu=arguments.gpu)
    target = arguments.target
    with stdout_on_stderr(), compilations(f"verifying {target}"):
        verified = verify_targets(
            target.path, target.qualname, arguments.argv, options, _minimising(arguments)
        )
    worst_first = sorted(verified.verdicts, key=lambda pair: WORST_FIRST.index(pair[1].outcome))
    for name, verdict in worst_first:
        first, *more = verdict.text.splitlines()
        lines = [f"{verdict.outcome:<12}  {name}: {first}\n", *(f"{'':<14}{line}\n" for line in more)]
        write_data("".join(lines), None)
    if arguments.gpu is not None and verified.verdicts:
        from aotlens.verify.tensors.values import tolerances

        write_data("\n".join(wrap(f"equal: within {tolerances()}", WIDTH)) + "\n", None)
    for failure in verified.failures:
        show_failure(failure.message, failure.traceback, failure.exit_code)
    return verified.exit_code(arguments.allow_unverified)


def _minimising(arguments: argparse.Namespace) -> "OnMismatch | None":
    """Return a function that writes the first mismatch and reports the others as not minimised."""
    if arguments.minimise is None:
        return None
    from aotlens.verify.locate.minimise import minimise  # imports torch

    file = Path(arguments.minimise)
    written: list[str] = []

    def write(checked: "Checked", options: "CompileOptions") -> str:
        if written:
            return f"not minimised: {file} has `{written[0]}`; name this target to minimise it"
        message = minimise(checked, options, file, arguments.target.path)
        if message.startswith("minimised"):
            written.append(checked.compiled.name)
        return message

    return write
