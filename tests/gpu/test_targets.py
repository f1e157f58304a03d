"""The table of GPUs: names find their row, and figures that depend on each other agree."""

import pytest

from aotlens.errors import UserError
from aotlens.model.gpus.architectures import ARCHITECTURES
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.model.gpus.names import DEFAULTS, find_target, target_names
from aotlens.model.gpus.targets import TARGETS

PUBLISHED_TFLOPS = {
    # outside of the matrix units, as the source of the row states it: f32, f64
    "V100": (15.7, 7.8),
    "T4": (8.1, 0.254),
    "A100 80GB": (19.5, 9.7),
    "A100 40GB": (19.5, 9.7),
    "A100 PCIe": (19.5, 9.7),
    "RTX 3090": (35.6, 0.556),
    "RTX 3080": (29.8, 0.465),
    "A10": (31.2, None),
    "A40": (37.4, 0.585),
    "RTX A6000": (38.7, 0.604),
    "RTX 4090": (82.6, 1.29),
    "RTX 4080": (48.7, 0.761),
    "L4": (30.3, None),
    "L40": (90.5, None),
    "L40S": (91.6, None),
    "H100 SXM": (66.9, 33.5),
    "H100 PCIe": (51.2, 25.6),
    "H100 NVL": (60, 30),
    "H200": (67, 34),
    "GH200": (67, 34),
    "B200": (75, 37),
    "RTX 5090": (104.8, 1.637),
    "RTX 5080": (56.3, 0.879),
}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_clock_gives_the_published_rates(target: GpuTarget) -> None:
    for dtype, published in zip(("f32", "f64"), PUBLISHED_TFLOPS[target.name], strict=True):
        if published is not None:
            assert target.peak_flops(dtype, "vector") / 1e12 == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_matrix_rates_halve_from_type_to_type(target: GpuTarget) -> None:
    rates = target.matrix
    assert rates.bf16 in (None, rates.f16)
    for wide, narrow in ((rates.tf32, rates.f16), (rates.f16, rates.f8)):
        if wide is not None and narrow is not None:
            assert narrow == pytest.approx(2 * wide, rel=0.02)


def test_a_matrix_type_that_the_gpu_lacks_runs_on_the_lanes() -> None:
    t4 = find_target("t4")
    assert t4.peak_flops("bf16", "matrix") == t4.peak_flops("f32", "vector")
    assert find_target("h100").peak_flops("f8e4m3fn", "matrix") == 1978.9e12


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("sm_90", "H100 SXM"),
        ("sm_90a", "H100 SXM"),
        ("compute_90", "H100 SXM"),
        ("9.0", "H100 SXM"),
        ("90", "H100 SXM"),
        ("h100", "H100 SXM"),
        ("H100-SXM", "H100 SXM"),
        ("h100_pcie", "H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx4090", "RTX 4090"),
        ("4090", "RTX 4090"),
        ("a100", "A100 80GB"),
        ("Tesla T4", "T4"),
        ("sm_100", "B200"),
        ("sm_120", "RTX 5090"),
    ],
)
def test_names(wanted: str, name: str) -> None:
    assert find_target(wanted).name == name


def test_every_name_finds_its_own_row() -> None:
    for target in TARGETS:
        assert {find_target(name) for name in (target.name, target.full_name, *target.aliases)} == {target}


def test_every_architecture_has_a_default() -> None:
    assert set(DEFAULTS) == {entry.compute_capability for entry in ARCHITECTURES}
    assert [names[0] for names in target_names().values()] == [
        DEFAULTS[entry.compute_capability] for entry in ARCHITECTURES
    ]
    assert sorted(name for names in target_names().values() for name in names) == sorted(
        target.name for target in TARGETS
    )


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("h1000", "unknown GPU 'h1000'; nearest: H100 SXM, V100, H200"),
        ("sm_77", "unknown GPU 'sm_77'; nearest: sm_75, sm_70, sm_90, sm_89"),
        (
            "abc",
            f"unknown GPU 'abc'; there is {', '.join(names[0] for names in target_names().values())}",
        ),
    ],
)
def test_an_unknown_name_offers_the_nearest(wanted: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        find_target(wanted)
    assert str(raised.value) == f"{message} (`aotlens doctor` lists every name)"


@pytest.mark.parametrize(
    ("wanted", "sm", "closest"),
    [("B300", "sm_103", "B200 (sm_100)"), ("gb10", "sm_121", "RTX 5090 (sm_120)")],
)
def test_a_gpu_without_a_source_for_its_figures(wanted: str, sm: str, closest: str) -> None:
    with pytest.raises(UserError) as raised:
        find_target(wanted)
    assert str(raised.value).startswith(f"GPU '{wanted}' ({sm}) is not in the table, because its")
    assert str(raised.value).endswith(f"are not published; the closest is {closest}")


@pytest.mark.parametrize("wanted", ["mi300x", "MI300X", "gfx942", "AMD Instinct MI250", "rx7900xtx"])
def test_gpus_of_amd_are_refused_by_name(wanted: str) -> None:
    with pytest.raises(UserError, match=f"GPU '{wanted}' is AMD's: code is generated for NVIDIA GPUs only"):
        find_target(wanted)


def test_what_a_driver_would_answer() -> None:
    h100 = find_target("h100")
    assert (h100.sm, h100.compute_capability, h100.full_name) == ("sm_90", (9, 0), "NVIDIA H100 SXM")
    assert (h100.shared_bytes_per_multiprocessor, h100.shared_bytes_per_block) == (233472, 232448)
    assert (h100.registers_per_multiprocessor, h100.threads_per_multiprocessor) == (65536, 2048)
    assert (h100.memory_bytes, h100.l2_bytes) == (80 << 30, 50 << 20)
