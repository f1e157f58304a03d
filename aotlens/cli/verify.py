"""`aotlens verify TARGET`: compiled against eager, in this process."""

import argparse
from textwrap import wrap

from aotlens.cli.target import add_compile_options, add_target, check_gpu, check_script, policy_of
from aotlens.cli.terminal import show_failure, stdout_on_stderr, write_data

WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_compile_options(parser, backend="inductor")
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="compare the code for this GPU (h100, a100, sm_90, …), which need not be there: its kernels run"
        " in Triton's interpreter",
    )
    parser.add_argument(
        "--own-blocks",
        action="store_true",
        help="with --gpu: keep the kernels' block sizes, instead of larger ones that are interpreted faster",
    )


def run(arguments: argparse.Namespace) -> int:
    check_script(arguments.target.path)
    from aotlens.options import CompileOptions, Interpreted
    from aotlens.session.verify_targets import verify_targets  # imports torch

    backend: str | Interpreted = arguments.backend
    if arguments.gpu is not None:
        check_gpu(arguments.gpu)
        backend = Interpreted(arguments.own_blocks)
    options = CompileOptions(backend, arguments.dynamic, policy_of(arguments), gpu=arguments.gpu)
    target = arguments.target
    with stdout_on_stderr():
        verified = verify_targets(target.path, target.qualname, arguments.argv, options)
    for name, verdict in verified.verdicts:
        if verdict is None:
            write_data(f"{'not called':<10}  {name}\n", None)
            continue
        word = "unchecked" if verdict.stopped else "ok" if verdict.ok else "MISMATCH"
        first, *more = verdict.text.splitlines()
        write_data("".join([f"{word:<10}  {name}: {first}\n", *(f"{'':<12}{line}\n" for line in more)]), None)
    if arguments.gpu is not None and verified.verdicts:
        from aotlens.verify.values import tolerances

        write_data("\n".join(wrap(f"equal: within {tolerances()}", WIDTH)) + "\n", None)
    for failure in verified.failures:
        show_failure(failure.message, failure.traceback, failure.exit_code)
    return verified.exit_code
