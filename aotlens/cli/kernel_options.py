"""Options that accompany `--gpu`: which kernels are shown, and how."""

import argparse
from dataclasses import dataclass

from aotlens.cli.options import seconds
from aotlens.errors import UserError
from aotlens.model.languages import KERNEL_LANGUAGES
from aotlens.options import KERNEL_LIMIT_S
from aotlens.render.kernel_code import LANGUAGES, parse_languages

__all__ = ["KernelSelection", "add_kernel_options", "kernel_selection"]


@dataclass(frozen=True, slots=True)
class KernelSelection:
    """The kernels that the user wants to see."""

    kernel: str | None
    """A name, or a part of one."""
    languages: tuple[str, ...]
    traced: tuple[str, ...]
    """The languages that the report must hold."""

    @property
    def only_code(self) -> bool:
        """Return True if kernels are shown instead of the report."""
        return self.kernel is not None or bool(self.languages)


def add_kernel_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernel",
        metavar="NAME",
        help="with --gpu: only kernels with this name, or whose name contains it",
    )
    parser.add_argument(
        "--text",
        metavar="LANGUAGE",
        help=f"with --gpu: only the code of the kernels, as {', '.join(LANGUAGES)} or all; separate several"
        " with commas",
    )
    parser.add_argument(
        "--kernel-time-limit",
        metavar="SECONDS",
        type=seconds,
        default=KERNEL_LIMIT_S,
        help="with --gpu: time limit for compiling each kernel (default: %(default)g)",
    )


def kernel_selection(arguments: argparse.Namespace) -> KernelSelection:
    """Return the selection.  Raises UserError for an impossible one, before anything is traced."""
    options = {"--kernel": arguments.kernel, "--text": arguments.text}
    option = next((name for name, value in options.items() if value is not None), None)
    if option is not None and arguments.gpu is None:
        raise UserError(f"{option} shows kernels for a GPU: name one with --gpu h100, sm_90, …")
    if arguments.kernel is not None and arguments.format == "json":
        raise UserError("--kernel prints code: remove --format json, which has all kernels")
    languages = tuple(dict.fromkeys(parse_languages(arguments.text))) if arguments.text is not None else ()
    whole = arguments.format in ("json", "html") and arguments.text is None
    shown = KERNEL_LANGUAGES if whole else languages
    traced = tuple(name for name in shown if name in KERNEL_LANGUAGES)
    return KernelSelection(arguments.kernel, languages, traced)
