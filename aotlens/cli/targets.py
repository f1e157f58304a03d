"""`TARGET` on the command line, and the arguments that several commands share."""

import argparse
from dataclasses import dataclass

from aotlens.errors import UserError
from aotlens.options import BACKENDS
from aotlens.policy import FORMS, Policy
from aotlens.settings import project_settings
from aotlens.worker.protocol import TraceOptions

__all__ = [
    "TargetName",
    "add_allow_unverified",
    "add_compile_options",
    "add_gpu",
    "add_policy",
    "add_project_options",
    "add_target",
    "check_gpu",
    "check_script",
    "fill_from_project",
    "policy_of",
]


@dataclass(frozen=True, slots=True)
class TargetName:
    """`SCRIPT` or `SCRIPT::qualname`."""

    path: str
    qualname: str | None

    @classmethod
    def parse(cls, text: str) -> "TargetName":
        path, separator, qualname = text.partition("::")
        if not path or (separator and not qualname):
            raise argparse.ArgumentTypeError(f"{text!r} is not SCRIPT or SCRIPT::name")
        return cls(path, qualname or None)

    def __str__(self) -> str:
        """Return it as the user writes it, for messages and for commands to run."""
        return self.path if self.qualname is None else f"{self.path}::{self.qualname}"


def check_script(path: str) -> None:
    """Raise UserError for a missing script, or one that does not parse, without loading torch."""
    from aotlens.session.errors.failures import failure_of  # the terminal app checks its script itself
    from aotlens.session.script.source import load_script

    try:
        load_script(path).code()
    except SyntaxError as error:
        failure = failure_of(error, path)
        raise UserError(f"{failure.message}\n{failure.traceback.rstrip()}", kind="syntax") from error


def add_target(parser: argparse.ArgumentParser, text: str = "SCRIPT or SCRIPT::name") -> None:
    parser.add_argument("target", metavar="TARGET", type=TargetName.parse, help=text)


def add_compile_options(parser: argparse.ArgumentParser, backend: str) -> None:
    parser.add_argument(
        "--backend", choices=BACKENDS, default=backend, help="code generation (default: %(default)s)"
    )
    parser.add_argument("--dynamic", action="store_true", help="trace with symbolic sizes")
    add_policy(parser)


def add_project_options(parser: argparse.ArgumentParser) -> None:
    """Add the settings of a trace that a project's `[tool.aotlens]` may set too."""
    parser.add_argument(
        "--backend", choices=BACKENDS, default=None, help="code generation (default: eager, or the project's)"
    )
    parser.add_argument(
        "--dynamic", action=argparse.BooleanOptionalAction, default=None, help="trace with symbolic sizes"
    )
    add_policy(parser)
    add_gpu(parser)


def fill_from_project(arguments: argparse.Namespace, path: str) -> None:
    """Set the options that the user left out: as `[tool.aotlens]` of the script's project says, else to their
    defaults.

    Raises:
        UserError: as `project_settings`.
    """
    project = project_settings(path) if path.endswith(".py") else {}
    if arguments.policy or arguments.memory_budget is not None:
        project.pop("policy", None)
    defaults = TraceOptions()
    values = {"backend": defaults.backend, "dynamic": defaults.dynamic, "gpu": None, "time_limit_s": None}
    values |= project
    if "policy" in project:
        arguments.policy = [project["policy"]]
    for field, name in (("backend",) * 2, ("dynamic",) * 2, ("gpu",) * 2, ("time_limit_s", "time_limit")):
        if getattr(arguments, name, None) is None:
            setattr(arguments, name, values[field])


def add_policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy",
        metavar="POLICY",
        action="append",
        default=[],
        help="which values are saved for the backward (default: min-cut); repeatable, or separated by"
        f" commas: {', '.join(FORMS)}",
    )
    parser.add_argument(
        "--memory-budget",
        metavar="BYTES|FRACTION",
        help=(
            "save at most this much: bytes (64MiB), or a fraction of what `--policy default` would save (0.5)"
        ),
    )


def add_allow_unverified(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-unverified",
        action="store_true",
        help="exit with 0 if a target could not be compared; a difference still exits with 1",
    )


def policy_of(arguments: argparse.Namespace) -> Policy:
    """Return the policy.  Raises UserError for an invalid policy or budget."""
    return Policy.parse(arguments.policy, arguments.memory_budget)


def add_gpu(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="also show the kernels for this GPU, which need not be present: h100, a100, sm_90, …",
    )


def check_gpu(name: str | None) -> None:
    """Raise UserError for an unknown GPU, or without Triton, before anything is traced."""
    if name is None:
        return
    from aotlens.codegen.gpu.offline.requirements import require_triton  # only with --gpu
    from aotlens.model.gpus.names import find_target

    find_target(name)
    require_triton()
