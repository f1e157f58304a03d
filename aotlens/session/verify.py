"""Compare the first call of each compiled target with eager, then one on random arguments.

Invariant: the comparison works on copies and never raises into the script, which continues as without it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aotlens.eager.checkpointed_graph import SecondWrites, eager_graph
from aotlens.model.report import Verdict
from aotlens.observe import announce_target, running_stage
from aotlens.options import CompileOptions, Interpreted
from aotlens.session.collector import Collector
from aotlens.session.isolation import isolated
from aotlens.session.script.targets import Call

if TYPE_CHECKING:
    from aotlens.compiled import Compiled
    from aotlens.verify.targets import Checked

__all__ = ["OnMismatch", "Verifier"]

CALLS = 4
"""The limit of calls per target that are compared until one of them is compared completely: a call is not
where eager raises, or where two runs of eager differ.
"""
NOT_CALLED = Verdict("not verified", "was compiled but not called, so there was no call to compare")

ONE_RUN = (
    "a checkpointed function writes to tensors outside it, as batch norm to its statistics: compiled code"
    " does so once; eager does so again when it recomputes, and was compared without that"
)


OnMismatch = Callable[["Checked", CompileOptions], str]
"""Takes the mismatch and the options; returns additional text for the user."""


class Verifier:
    """Verifies each target once and collects the verdicts."""

    def __init__(
        self, collector: Collector, options: CompileOptions, on_mismatch: OnMismatch | None = None
    ) -> None:
        """`options` apply to targets that Dynamo captures; `on_mismatch` is called for each mismatch."""
        self._collector = collector
        self._options = options
        self._on_mismatch = on_mismatch
        self._verdicts: dict[int, Verdict] = {}
        """By the target's position in the collector."""

    def verdicts(self) -> list[Verdict]:
        """Return one verdict for each collected target."""
        return [self._verdicts.get(index, NOT_CALLED) for index in range(len(self._collector.compiled))]

    def compare(self, call: Call, options: CompileOptions) -> None:
        """Compile a call for the direct frontend and verify it on copies of its arguments."""
        verdict = self._judged(options, call.function, call.args, call.kwargs)
        self._verdicts[len(self._collector.compiled) - 1] = verdict

    def before_direct(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: CompileOptions,
    ) -> None:
        """Verify a call that the script's own `aotlens.compile` is about to compile."""
        with self._collector.discarding():
            verdict = _unless_it_fails(lambda: self._judged(options, function, args, kwargs))
        self._verdicts[len(self._collector.compiled)] = verdict

    def around(self, function: Callable[..., Any], graph: Any) -> Callable[..., Any]:
        """Wrap a compiled graph so that it verifies at most `CALLS` calls, until one was compared completely.

        If kernels are interpreted, the script's own calls run in eager, because the interpreter is too slow
        for a whole script.
        """
        index = len(self._collector.compiled) - 1
        compiled = self._collector.compiled[index]
        second_writes = SecondWrites()
        comparable, graph = eager_graph(graph, second_writes), eager_graph(graph)
        boxed = getattr(function, "_boxed_call", False)
        flat: Callable[..., Any] = (lambda *inputs: function(list(inputs))) if boxed else function
        interpreted = isinstance(self._options.backend, Interpreted)
        remaining = 1 if interpreted else CALLS

        def verifying(*args: Any) -> Any:
            nonlocal remaining
            if remaining:
                inputs = list(args[0] if boxed else args)
                verdict = _unless_it_fails(lambda: self._judged_graph(compiled, (flat, comparable), inputs))
                if second_writes.number and verdict.outcome == "equal":
                    verdict = _with_one_run(verdict)
                self._verdicts[index] = verdict
                remaining = remaining - 1 if verdict.outcome == "not verified" else 0
            if interpreted:
                return graph(*(args[0] if boxed else args))
            return function(*args)

        if boxed:
            verifying._boxed_call = True  # type: ignore[attr-defined]
        return verifying

    def _judged(
        self,
        options: CompileOptions,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Verdict:
        with isolated(), running_stage("verify"):
            if not isinstance(options.backend, Interpreted):
                from aotlens.verify.targets import check_function  # only to verify: 20 modules

                return self._verdict(check_function(options, function, args, kwargs), options)
            from aotlens.verify.gpu.gpu_code import verify_gpu_code  # only with a GPU: it loads Inductor

            return verify_gpu_code(options, function, args, kwargs).verdict()

    def _judged_graph(
        self, compiled: "Compiled", calls: tuple[Callable[..., Any], Callable[..., Any]], inputs: list[Any]
    ) -> Verdict:
        """Verify a graph; `calls` are the compiled graph and eager's."""
        announce_target(compiled.name)
        with isolated(), running_stage("verify"):
            if compiled.code.interpreted is None:
                from aotlens.verify.targets import check_graph  # only to verify: 20 modules

                with self._collector.discarding():
                    return self._verdict(check_graph(compiled, self._options, calls, inputs), self._options)
            from aotlens.verify.gpu.gpu_code import verify_gpu_graph  # only with a GPU: it loads Inductor

            return verify_gpu_graph(compiled, calls, inputs, _names(compiled)).verdict()

    def _verdict(self, checked: "Checked", options: CompileOptions) -> Verdict:
        verification = checked.verification
        verdict = verification.verdict()
        if verdict.outcome != "differs" or self._on_mismatch is None:
            return verdict
        with self._collector.discarding():
            return Verdict(verdict.outcome, f"{verdict.text}\n{self._on_mismatch(checked, options)}")


def _names(compiled: "Compiled") -> list[str]:
    return [row.name for row in compiled.target().inputs]


def _with_one_run(verdict: Verdict) -> Verdict:
    """Return the verdict of a comparison that omits the second writes of a checkpoint."""
    first, *details = verdict.text.splitlines()
    return replace(
        verdict, text="\n".join([f"{first}; writes in a checkpoint count once", *details, ONE_RUN])
    )


def _unless_it_fails(judge: Callable[[], Verdict]) -> Verdict:
    """Return the verdict, or the error of the comparison as the reason why there is none."""
    try:
        return judge()
    except Exception as error:  # noqa: BLE001 (the script must not end because its call cannot be copied)
        first = (str(error).splitlines() or [""])[0]
        return Verdict("not verified", f"the comparison failed with {type(error).__name__}: {first}")
