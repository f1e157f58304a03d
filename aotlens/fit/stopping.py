"""Decide when an observed script has run for long enough: when two steps allocate the same.

Invariant: if the repeated step reads integers that fake tensors lack, another step runs with other integers,
so a script whose sizes depend on them is recognised.
"""

import gc
from collections.abc import Sequence
from typing import Any

from aotlens.fit.observer import Observer
from aotlens.fit.step import period_of
from aotlens.ir.origin import Frames
from aotlens.session.collector import StopScript

__all__ = ["StepWatch"]


class StepWatch:
    """Called at the end of each `step` of an optimizer."""

    def __init__(self, to_end: bool, compiled: Sequence[Any] = ()) -> None:
        """`compiled` grows with each compilation, whose reference cycles hold tensors of the step."""
        self._to_end = to_end
        self._compiled = compiled
        self._collected_after = 0
        self._period = 0
        """The calls of `step` that the test with other integers takes; 0 before it."""
        self._end_of_test = 0
        self._is_settled = False
        self._independent: frozenset[Frames] = frozenset()
        """The lines whose integers determine no sizes."""

    def after_step(self, observer: Observer) -> None:
        """Stop the script, or begin or evaluate the test with other integers."""
        if len(self._compiled) != self._collected_after:
            self._collected_after = len(self._compiled)
            gc.collect()
        if self.is_testing:
            if len(observer.boundaries) == self._end_of_test:
                self._evaluate(observer)
        elif not self._is_settled and (period := period_of(observer)) is not None:
            self._settle(observer, period)
        if self._is_settled and not self._to_end:
            raise StopScript

    @property
    def is_testing(self) -> bool:
        """Return True while the script gets other integers."""
        return bool(self._period) and not self._is_settled

    def _settle(self, observer: Observer, period: int) -> None:
        if not observer.placeholders.integers_read:
            self._is_settled = True
            return
        self._period, self._end_of_test = period, len(observer.boundaries) + period
        observer.placeholders.vary_integers(True)

    def _evaluate(self, observer: Observer) -> None:
        self._is_settled = True
        observer.placeholders.vary_integers(False)
        if period_of(observer) == self._period:
            self._independent = frozenset(observer.placeholders.integers_varied)
        else:
            self._discard_test(observer)

    def end_test(self, observer: Observer) -> None:
        """Handle a script that fails with other integers."""
        self._is_settled = True
        self._discard_test(observer)

    def _discard_test(self, observer: Observer) -> None:
        observer.forget_calls(self._end_of_test - self._period)

    def unknown_integers(self, observer: Observer) -> frozenset[Frames]:
        """Return the lines that read integers on which sizes may depend."""
        return frozenset(observer.placeholders.integers_read) - self._independent
