"""Each example of the page "What is unsupported" raises its case."""

import pytest
import torch

import aotlens
from aotlens.errors import AotlensError, UnsupportedError
from aotlens.options import CompileOptions
from aotlens.unsupported import CASES
from scripts.docs.unsupported_page import shown_case
from tests.programs import PROGRAMS
from tests.unsupported import EXAMPLES
from tests.unsupported.example import Example

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.case)
def test_example_raises_its_case(example: Example) -> None:
    with pytest.raises((AotlensError, RuntimeError)) as raised:
        example.run()
    cause = raised.value.__cause__  # the case of a second derivative, whose error names the function too
    inner = getattr(raised.value, "inner_exception", None)  # what Dynamo raises an error of its own for
    assert example.case in {getattr(error, "name", None) for error in (raised.value, cause, inner)}


def test_each_case_has_one_example() -> None:
    cases = [example.case for example in EXAMPLES]
    assert sorted(cases) == sorted(set(cases))
    assert set(cases) <= CASES.keys()
    assert not set(cases) & {shown_case(program) for program in PROGRAMS}


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_operator_whose_kernel_fails_on_fake_tensors_has_no_fake_kernel(dynamic: bool) -> None:
    """With known sizes torch tries the real kernel in place of the missing fake one."""
    options = CompileOptions("eager", dynamic=dynamic)
    function = aotlens.compile(lambda x: x.to_mkldnn().to_dense() * 2, options=options)
    with pytest.raises(UnsupportedError, match=r"`aten\.to_mkldnn.*`, which has no fake kernel"):
        function(torch.ones(3, 3))
