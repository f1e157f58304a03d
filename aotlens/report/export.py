"""Whether a module text runs by itself."""

from aotlens.errors import UnsupportedError
from aotlens.report.records import Span


def refuse_unbound(name: str, bound: tuple[str, ...], span: Span | None) -> None:
    """Raise unless the text makes everything that it names.

    Raises:
        UnsupportedError: it needs a constant that is too large to write down, or a class of the user's.
    """
    if bound:
        what = "a large constant"
        if any("SPEC" in n for n in bound):
            what = "a result or argument of a class of your own"
        elif any("table_index" in n for n in bound):
            what = "a Triton kernel of this process"
        raise UnsupportedError(
            f"export of `{name}`, whose text would need {what} (`{bound[0]}`)",
            span,
            "`aotlens export`, which traces for a module that stands alone, may write it",
        )
