"""The phases of a trace in words."""

from aotlens.view.progress import phase_of


def test_each_message_is_one_phase_in_words() -> None:
    messages = (
        ("queued", ""),
        ("import", "/home/me/train.py"),
        ("run", ""),
        ("joint", "GPT.forward"),
        ("capture", ""),
        ("code for sm_90", "GPT.forward"),
        ("kernels for sm_90: 12 of 45: triton_poi_fused_0", "GPT.forward"),
        ("report", ""),
    )
    assert [str(phase_of(*message)) for message in messages] == [
        "waiting for another trace",
        "reading train.py",
        "running your script",
        "tracing GPT.forward: joint",
        "tracing your functions: capture",
        "generating code for sm_90",
        "generating kernels for sm_90 (12 of 45)",
        "building the report",
    ]
