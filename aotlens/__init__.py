"""aotlens: what ahead-of-time compilation does to a PyTorch function, shown at the source line.

Importing this package imports nothing heavy; torch is imported by the first name that needs it.
"""

from typing import TYPE_CHECKING, Any

from aotlens._version import __version__

if TYPE_CHECKING:
    from aotlens.errors import AotlensError, UnsupportedError
    from aotlens.frontends.compile import compile, export, inspect
    from aotlens.options import CompileOptions
    from aotlens.report.records import Report
    from aotlens.session.example_decorator import example
    from aotlens.verify import verify

_HOMES = {
    "AotlensError": "aotlens.errors",
    "CompileOptions": "aotlens.options",
    "Report": "aotlens.report.records",
    "UnsupportedError": "aotlens.errors",
    "compile": "aotlens.frontends.compile",
    "example": "aotlens.session.example_decorator",
    "export": "aotlens.frontends.compile",
    "inspect": "aotlens.frontends.compile",
    "verify": "aotlens.verify",
}
"""Where each public name lives; the module is imported when the name is first used."""

__all__ = [
    "AotlensError",
    "CompileOptions",
    "Report",
    "UnsupportedError",
    "__version__",
    "compile",
    "example",
    "export",
    "inspect",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'aotlens' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
