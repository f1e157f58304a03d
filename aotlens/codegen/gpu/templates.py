"""Kernels that Inductor generates from a template with many choices: matrix products, convolutions,
attention.

With the GPU present, Inductor runs all choices and selects the fastest. Otherwise the first choice of the
template is selected, and nothing runs. Invariant: the other choices are recorded with the selected one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotlens.codegen.gpu.offline.context import can_run_kernels
from aotlens.codegen.gpu.records import Choice
from aotlens.torch_api.gpu import compiling_modules
from aotlens.torch_api.inductor.compile import filter_autotune_choices
from aotlens.torch_api.replacements import Replacement, replacing

ASSUMED = (
    "of a kernel that is chosen by running all choices (max-autotune), the first choice is shown, with the"
    " figures of the others; a GPU may take another one, or the library's kernel"
)
LIBRARY_ONLY = (
    "no template of Inductor's fits some operators that are chosen by running all choices: the library's"
    " kernel is shown"
)


@dataclass(slots=True)
class TemplateChoices:
    """The choices that the templates of one graph offer; mutable while Inductor lowers it."""

    runs: bool = False
    """Whether Inductor runs all choices."""
    choices: dict[int, list[Any]] = field(default_factory=dict)
    """The other choices, by the identity of the selected one's renderer."""
    kernels: dict[str, list[Any]] = field(default_factory=dict)
    """The other choices, by the kernel of the selected one."""
    assumptions: list[str] = field(default_factory=list)

    def select(self, choices: list[Any]) -> list[Any]:
        """Return the choices for Inductor: only the first template, where it cannot run them."""
        templates = [choice for choice in choices if hasattr(choice, "make_kernel_render")]
        if self.runs:
            for template in templates:
                others = [choice for choice in templates if choice is not template]
                self.choices[id(template.make_kernel_render)] = others
            return choices
        if len(choices) > 1:
            self._assume(ASSUMED if templates else LIBRARY_ONLY)
        if not templates:
            return choices[:1]
        self.choices[id(templates[0].make_kernel_render)] = templates[1:]
        return templates[:1]

    def note(self, kernel_name: str, schedule: Any) -> None:
        """Note which kernel a selected choice became."""
        for scheduled in schedule if isinstance(schedule, (list, tuple)) else ():
            render = getattr(getattr(scheduled, "node", None), "make_kernel_render", None)
            if id(render) in self.choices:
                self.kernels[kernel_name] = self.choices[id(render)]

    def unselected(self, kernel_name: str) -> tuple[Choice, ...]:
        """Return the choices of a kernel that were not selected."""
        return tuple(_source(choice.bmreq) for choice in self.kernels.get(kernel_name, ()))

    def _assume(self, text: str) -> None:
        if text not in self.assumptions:
            self.assumptions.append(text)


def _source(request: Any) -> Choice:
    """Build a choice from the request with which Inductor would time it."""
    text = Path(request.module_path).read_text(encoding="utf-8")
    return Choice(request.kernel_name, text, tuple(map(str, request.extra_args)))


@contextmanager
def recording_choices() -> Iterator[TemplateChoices]:
    """Within the context, Inductor selects the first choice of each template, or the fastest where it can run
    them."""
    choices = TemplateChoices(can_run_kernels())
    scheduling = compiling_modules().triton_codegen.TritonScheduling
    define: Callable[..., str] = scheduling.define_kernel

    def note(self: Any, src_code: str, node_schedule: Any, kernel: Any) -> str:
        name = define(self, src_code, node_schedule, kernel)
        choices.note(name, node_schedule)
        return name

    why = "which kernel a choice became is known when it is defined"
    with (
        replacing(Replacement(scheduling, "define_kernel", note, why)),
        filter_autotune_choices(choices.select),
    ):
        yield choices
