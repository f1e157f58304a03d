"""Optional dependencies of GPU code generation."""

from importlib.util import find_spec

from aotlens.errors import BackendError

INSTALL_TRITON = "pip install 'aotlens[gpu]'"


def require_triton() -> None:
    """Raise BackendError, with how to install it, where Triton is missing."""
    if find_spec("triton") is None:
        raise BackendError(
            f"code for a GPU needs Triton, which is not installed; install it with {INSTALL_TRITON}; it needs"
            " no GPU, and everything else works without it"
        )
