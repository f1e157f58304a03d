"""The cache entry of one compilation: looked up before the stages run, stored after they have.

Invariant: an entry's name is the digest of everything on which it depends. Several entries with one key
differ in their assumptions about symbolic sizes, and the first that fits is used.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from aotlens.codegen.records import Generated, GraphCode
from aotlens.codegen.serialized_code import SerializedCode
from aotlens.compile_cache.records import StoredResult
from aotlens.compile_cache.size_guards import CallSizes
from aotlens.disk_cache import Store, digest
from aotlens.errors import ReportError
from aotlens.ir.fingerprint import NoFingerprintError
from aotlens.model.codec import decode_record, encode_record
from aotlens.model.report import Target
from aotlens.model.target_facts import CacheAnswer
from aotlens.runtime.graph_text import graph_name

__all__ = ["CacheEntry"]

T = TypeVar("T")

RESULTS, CODE, REPORTS = "compiled", "compiled-code", "compiled-reports"
"""Kinds of entries: module texts, the code of their graphs, and their reports."""

VARIANTS = 8
"""The most entries of one key, with different assumptions about sizes."""

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class CacheEntry:
    """Mutable: records which of its stored variants is used."""

    store: Store | None
    key: str
    sizes: CallSizes | None = None
    files: tuple[str, ...] = ()
    """Digests of the user's files, on which a report depends in addition to the key."""
    reason: str = ""
    """Why nothing is cached; empty otherwise."""
    result: StoredResult | None = None
    """The stored result of this call; None until it is found or put."""
    hit: bool = False
    variant: int = 0
    loaded: set[str] = field(default_factory=set)
    """The graphs whose code is loaded."""

    @classmethod
    def uncacheable(cls, name: str, reason: str) -> "CacheEntry":
        """Return an entry that neither looks up nor stores; the report shows the reason."""
        _LOG.debug("the compiled result of %s is not stored: %s", name, reason)
        return cls(None, "", reason=reason)

    def find(self) -> StoredResult | None:
        """Return the stored result for this call's sizes."""
        for variant in range(VARIANTS if self.sizes is not None else 1):
            self.variant = variant
            result = self._get(RESULTS, self._variant_key(), StoredResult)
            if result is None:
                return None
            if self.sizes is None or self.sizes.fit(result.guards):
                self.result, self.hit = result, True
                return result
        self.disable(f"{VARIANTS} results for other sizes are there")
        return None

    def disable(self, reason: str) -> None:
        """Store nothing from here on."""
        _LOG.debug("a compiled result is not stored: %s", reason)
        self.reason, self.store = reason, None

    def put(self, result: StoredResult, codes: Iterable[tuple[str, GraphCode]]) -> None:
        """Store a result and the code of its graphs; the result last, after everything that it names.

        Raises NoFingerprintError for code that another process cannot load.
        """
        if self.store is None:
            return
        for name, code in codes:
            self.put_code(name, code)
        self.result = result
        self._put(RESULTS, self._variant_key(), result)

    def put_code(self, name: str, code: GraphCode) -> None:
        """Store a backend's code for one graph; raises NoFingerprintError."""
        self.loaded.add(name)
        if self.store is not None and code.serialize is not None:
            self._put(CODE, self._variant_key(name), code.serialize())

    def code(self, name: str) -> SerializedCode | None:
        """Return a backend's code for one graph; None where it is not stored."""
        return self._get(CODE, self._variant_key(name), SerializedCode)

    def storing_backward(self, code: Generated) -> Generated:
        """Return the code with a lazy backward that is stored when it is compiled."""
        backward = code.backward
        if backward is None or backward.compile is None or not backward.lazy:
            return code
        compile_graph = partial(self.compile_late, graph_name(backward.program), backward)
        return replace(code, backward=replace(backward, compile=compile_graph))

    def compile_late(self, name: str, code: GraphCode) -> Callable[[list[Any]], Any]:
        """Compile a graph after its result was stored; store its code, and add the time to the result."""
        assert code.compile is not None  # checked by the callers
        started = time.perf_counter()
        made = code.compile()
        took_ms = (time.perf_counter() - started) * 1000
        try:
            self.put_code(name, code)
            if self.result is not None:
                self.result = replace(self.result, cold_ms=self.result.cold_ms + took_ms)
                self._put(RESULTS, self._variant_key(), self.result)
        except NoFingerprintError as error:
            _LOG.debug("the code of `%s` is not stored: %s", name, error)
        return made

    def target(self) -> Target | None:
        """Return the stored report of the result; None where no run has built it."""
        return self._get(REPORTS, self._report_key(), Target)

    def put_target(self, target: Target) -> None:
        """Store a report, without the fields of this run."""
        if self.store is not None and self.result is not None:
            self._put(REPORTS, self._report_key(), replace(target, timings_ms={}, cache_answer=None))

    def answer(self) -> CacheAnswer:
        """Return how the cache was used, for the report."""
        if self.hit and self.result is not None:
            return CacheAnswer("hit", cold_ms=self.result.cold_ms)
        return CacheAnswer("not stored", self.reason) if self.reason else CacheAnswer("miss")

    def _variant_key(self, graph: str = "") -> str:
        return digest(self.key, str(self.variant), graph)

    def _report_key(self) -> str:
        return digest(self._variant_key(), *sorted(self.loaded), *self.files)

    def _get(self, kind: str, key: str, record: type[T]) -> T | None:
        value = self.store.get(kind, key) if self.store is not None else None
        try:
            return None if value is None else decode_record(record, value)
        except ReportError as error:
            _LOG.debug("ignored an entry of %s: %s", kind, error)
            return None

    def _put(self, kind: str, key: str, record: Any) -> None:
        if self.store is not None:
            self.store.put(kind, key, encode_record(record))
