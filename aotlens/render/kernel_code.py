"""The generated code of single kernels, as text for the tools of its language.

Invariant: a comment in the texts' language separates two texts, so that the output stays valid.
"""

import difflib
from collections.abc import Iterator

from aotlens.errors import UserError
from aotlens.model.languages import KERNEL_LANGUAGES
from aotlens.model.report import Kernel, KernelConfig, Report
from aotlens.view.kernels import TRITON, block_sizes_text, grid_text, is_for_gpu, kernel_texts
from aotlens.view.quantities import human_bytes, percent

LANGUAGES = (TRITON, *KERNEL_LANGUAGES)
"""In the order in which a kernel becomes each of them."""

_COMMENTS = {TRITON: "#", "llir": ";"}
"""The start of a comment; `//` in all other languages."""


def kernel_code(report: Report, name: str | None, languages: tuple[str, ...]) -> str:
    """Return these languages of the kernels whose name contains `name`; of all without a name.

    Raises:
        UserError: no such kernel, or no such text of any.
    """
    kernels = _named(report, name)
    if not languages:
        return "".join(f"{_source(kernel)}\n" for kernel in kernels)
    texts = [
        (kernel, language, text)
        for kernel in kernels
        for language in languages
        if (text := _text(kernel, language))
    ]
    if not texts:
        raise UserError(_why_none(kernels, languages))
    if len(texts) == 1:
        return texts[0][2]
    return "".join(
        f"{_comment(language, f'{_title(kernel)}, {language}')}\n{text}\n" for kernel, language, text in texts
    )


def _named(report: Report, name: str | None) -> tuple[Kernel, ...]:
    """Each kernel once, at its first launch."""
    kernels = tuple(_generated(report))
    if not kernels:
        raise UserError("no kernel was generated for the GPU: the report lists the library calls")
    exact = tuple(kernel for kernel in kernels if kernel.name == name)
    matches = exact or tuple(kernel for kernel in kernels if (name or "") in kernel.name)
    if not matches:
        names = dict.fromkeys(kernel.name for kernel in kernels)
        near = difflib.get_close_matches(name or "", names, n=3, cutoff=0.3) or tuple(names)[:3]
        raise UserError(f"no generated kernel has a name like '{name}'; nearest: {', '.join(near)}")
    return matches


def _generated(report: Report) -> Iterator[Kernel]:
    for target in report.targets:
        seen: set[tuple[str, str]] = set()
        for kernel in target.kernels:
            known = kernel.phase, kernel.name
            if kernel.kind == "generated" and is_for_gpu(kernel) and known not in seen:
                seen.add(known)
                yield kernel


def _text(kernel: Kernel, language: str) -> str:
    """Return the kernel's text without the blank lines before it; empty if it has none in that language."""
    return dict(kernel_texts(kernel)).get(language, "").lstrip("\n")


def _why_none(kernels: tuple[Kernel, ...], languages: tuple[str, ...]) -> str:
    wanted = ", ".join(languages)
    failed = next((kernel for kernel in kernels if kernel.error), None)
    if failed is not None:
        return f"no {wanted} of `{failed.name}`, which was not compiled: {failed.error}"
    first = kernels[0]
    return f"no {wanted} of `{first.name}`: Triton's disassembler here does not support {first.target}"


def _source(kernel: Kernel) -> str:
    """Return Triton's source, below the resources of each configuration."""
    lines = [_title(kernel), *(_figures(config) for config in kernel.configs)]
    lines += kernel.error.splitlines()
    return "\n".join((*(_comment(TRITON, line) for line in lines), _text(kernel, TRITON)))


def _title(kernel: Kernel) -> str:
    return f"{kernel.name}, {kernel.phase}, {kernel.target}"


def _figures(config: KernelConfig) -> str:
    launch = f"{block_sizes_text(config)} warps={config.warps} stages={config.stages}".lstrip()
    needs = [
        f"{config.registers} registers",
        f"{human_bytes(config.spill_bytes)} spills",
        f"{human_bytes(config.shared_bytes)} shared",
        f"occupancy {percent(config.occupancy)} by {config.limit}",
    ]
    return f"  {launch}, {grid_text(config)}: {', '.join(needs)}"


def _comment(language: str, text: str) -> str:
    return f"{_COMMENTS.get(language, '//')} {text}"


def parse_languages(text: str) -> Iterator[str]:
    """`ptx,sass`, or `all`.  Raises UserError with the known ones."""
    for name in text.split(","):
        if name == "all":
            yield from LANGUAGES
        elif name in LANGUAGES:
            yield name
        else:
            raise UserError(f"unknown kernel language '{name}'; known are {', '.join(LANGUAGES)}, all")
