"""C++ kernels of one graph share libraries, are built once, and are built alone where sharing fails."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch._inductor.codecache import CppPythonBindingsCodeCache

from aotlens.frontends.dynamo import dynamo_backend
from aotlens.options import CompileOptions
from aotlens.torch_api.inductor import kernel_groups

pytestmark = pytest.mark.filterwarnings("ignore")  # Dynamo warns of its own deprecations

X, W = torch.linspace(-1, 1, 64).reshape(8, 8), torch.linspace(-2, 2, 64).reshape(8, 8)


def three_kernels(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w).sin() @ w).cos() @ w + 1


def two_of_them(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w).sin() @ w).cos() @ w


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Inductor's folder, new for each test, as is what Inductor remembers of it."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    CppPythonBindingsCodeCache.cache_clear()
    return tmp_path


def compiled(fn: Callable[..., Any], threads: int = 1) -> Tensor:
    """Return the result of the function, compiled as in a new process."""
    torch.compiler.reset()
    options = CompileOptions(backend="inductor", cache=False)
    with inductor_config.patch(compile_threads=threads, fx_graph_cache=False):
        return torch.compile(fn, backend=dynamo_backend(options))(X, W)


def libraries(folder: Path) -> list[Path]:
    return list(folder.rglob("*.main.so"))


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_of_one_graph_share_a_library(folder: Path, threads: int) -> None:
    torch.testing.assert_close(compiled(three_kernels, threads), three_kernels(X, W))
    assert len(libraries(folder)) == 1


def test_each_thread_builds_a_group(folder: Path) -> None:
    kernels = [kernel_groups._QueuedKernel((), "x" * length, lambda: None) for length in (5, 4, 3, 2, 1)]
    groups = kernel_groups._groups(kernels, 2)
    assert [[len(kernel.source) for kernel in group] for group in groups] == [[5, 2, 1], [4, 3]]
    assert [len(group) for group in kernel_groups._groups(kernels[:3], 8)] == [3]


def test_a_kernel_is_built_once_whichever_kernels_are_beside_it(folder: Path) -> None:
    compiled(three_kernels)
    torch.testing.assert_close(compiled(two_of_them), two_of_them(X, W))
    assert len(libraries(folder)) == 1


def test_a_kernel_whose_library_is_gone_is_built_again(folder: Path) -> None:
    compiled(three_kernels)
    (library,) = libraries(folder)
    library.unlink()
    CppPythonBindingsCodeCache.cache_clear()  # another process has not loaded it
    torch.testing.assert_close(compiled(two_of_them), two_of_them(X, W))
    assert len(libraries(folder)) == 1


def test_a_library_is_loaded_again_after_inductor_forgets_it(folder: Path) -> None:
    compiled(three_kernels)
    CppPythonBindingsCodeCache.cache_clear()  # as `fresh_cache()` does
    torch.testing.assert_close(compiled(two_of_them), two_of_them(X, W))
    assert len(libraries(folder)) == 1


def test_kernels_are_built_alone_where_their_library_does_not_compile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_groups, "_text", lambda group: "no C++")
    torch.testing.assert_close(compiled(three_kernels), three_kernels(X, W))
    assert len(libraries(folder)) == 3


@pytest.mark.parametrize(
    ("source", "can_share"),
    [
        ('#include <a.h>\nextern "C"  void kernel(float* x) {}', True),
        ('#define N 4\nextern "C" void kernel(float* x) {}', False),
        ('extern "C" int other();\nextern "C" void kernel(float* x) {}', False),
    ],
)
def test_macros_and_other_c_functions_are_not_shared(source: str, can_share: bool) -> None:
    assert kernel_groups._can_share(source) is can_share


def test_an_error_of_a_kernel_is_raised() -> None:
    def divide(x: Tensor, y: Tensor) -> Tensor:
        return x // y + 1

    torch.compiler.reset()
    fn = torch.compile(divide, backend=dynamo_backend(CompileOptions(backend="inductor", cache=False)))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        fn(torch.arange(8), torch.zeros(8, dtype=torch.int64))
