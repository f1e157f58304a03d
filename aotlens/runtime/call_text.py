"""The lines of `call` and what they are written from: one record for every module that writes some."""

from dataclasses import dataclass

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.records import Captured
from aotlens.ir.render import Names
from aotlens.partition.records import Partitioned
from aotlens.runtime.module_text import TextBuilder


@dataclass(frozen=True, slots=True)
class CallText:
    """The text of `call` for one target, while it is written."""

    builder: TextBuilder
    parts: Partitioned
    names: Names
    arguments: list[str]
    """The text's name of every flat input."""

    @property
    def captured(self) -> Captured:
        return self.parts.joint.captured

    @property
    def meta(self) -> ViewAndMutationMeta:
        return self.parts.joint.meta
