"""Comparing the first call of each compiled target with eager, then one on random arguments.

Invariant: the comparison works on copies, so the script goes on as if it had not been made.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aotlens.options import CompileOptions, Interpreted
from aotlens.report.records import Verdict
from aotlens.session.collect import Collector
from aotlens.session.targets import Call
from aotlens.verify.targets import Checked, check_function, check_graph

if TYPE_CHECKING:
    from aotlens.pipeline import Compiled

__all__ = ["Verifier"]

OnMismatch = Callable[[Checked, CompileOptions], str]
"""Takes what differs and how it was compiled; answers what the user is told beside."""


class Verifier:
    """Verifies each target once; holds the verdicts."""

    def __init__(
        self, collector: Collector, options: CompileOptions, on_mismatch: OnMismatch | None = None
    ) -> None:
        """`options` are those of the targets that Dynamo captures; `on_mismatch` hears of what differs."""
        self._collector = collector
        self._options = options
        self._on_mismatch = on_mismatch
        self._verdicts: dict[int, Verdict] = {}
        """By the target's position in the collector."""

    def verdicts(self) -> list[Verdict | None]:
        """One for each target collected; None for what was not called or not compared."""
        return [self._verdicts.get(index) for index in range(len(self._collector.compiled))]

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
        """Verify a call that the script's own `aotlens.compile` compiles next."""
        with self._collector.not_listening():
            verdict = self._judged(options, function, args, kwargs)
        self._verdicts[len(self._collector.compiled)] = verdict

    def around(self, function: Callable[..., Any], graph: Any) -> Callable[..., Any]:
        """What Dynamo calls instead: verifies once, then passes calls on.

        Those go to eager where kernels are interpreted, which takes too long for a whole script.
        """
        index = len(self._collector.compiled) - 1
        compiled = self._collector.compiled[index]
        boxed = getattr(function, "_boxed_call", False)
        flat: Callable[..., Any] = (lambda *inputs: function(list(inputs))) if boxed else function
        interpreted = isinstance(self._options.backend, Interpreted)

        def verifying(*args: Any) -> Any:
            if index not in self._verdicts:
                inputs = list(args[0] if boxed else args)
                self._verdicts[index] = self._judged_graph(compiled, (flat, graph), inputs)
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
        if not isinstance(options.backend, Interpreted):
            return self._verdict(check_function(options, function, args, kwargs), options)
        from aotlens.verify.gpu_code import verify_gpu_code  # only with a GPU: it loads Inductor

        return _gpu_verdict(verify_gpu_code(options, function, args, kwargs))

    def _judged_graph(
        self, compiled: "Compiled", calls: tuple[Callable[..., Any], Callable[..., Any]], inputs: list[Any]
    ) -> Verdict:
        """`calls` are the compiled graph and eager's."""
        if compiled.code.interpreted is None:
            with self._collector.not_listening():
                return self._verdict(check_graph(compiled, self._options, calls, inputs), self._options)
        from aotlens.verify.gpu_code import verify_gpu_graph  # only with a GPU: it loads Inductor

        return _gpu_verdict(verify_gpu_graph(compiled, calls, inputs, _names(compiled)))

    def _verdict(self, checked: Checked, options: CompileOptions) -> Verdict:
        verification = checked.verification
        more = ""
        if not verification.ok and not verification.unjudged and self._on_mismatch is not None:
            with self._collector.not_listening():
                more = "\n" + self._on_mismatch(checked, options)
        return Verdict(verification.ok, verification.finding() + more, verification.unjudged)


def _names(compiled: "Compiled") -> list[str]:
    return [row.name for row in compiled.target().inputs]


def _gpu_verdict(verification: Any) -> Verdict:
    return Verdict(verification.ok, verification.summary(), bool(verification.stopped))
