"""The commands about the memory of a training step: `aotlens fit`, with and without tests of edits.

Invariant: they run the user's script, so the server calls them only on a command.
"""

from lsprotocol import types

from aotlens.model.failure import Failure
from aotlens.model.fit import Fit
from aotlens.view.step_memory.advice import advice_fixes, advice_words
from aotlens.view.step_memory.lines import step_words
from lsp_server.app import Server, path_of
from lsp_server.checks import failed, not_saved, say_unsaved, script_of
from lsp_server.runs.tracer import Result

__all__ = ["lower_peak", "will_it_fit"]


async def will_it_fit(server: Server, uri: str) -> Result:
    """Run the script as `aotlens fit` does, and show the memory of its step beside the source."""
    answer = await _step_of(server, uri)
    if not isinstance(answer, Fit):
        return answer
    message, is_ok = step_words(answer), answer.fits is None or answer.fits.ok
    server.say(message, types.MessageType.Info if is_ok else types.MessageType.Warning)
    return {"peakBytes": answer.step_peak_bytes, "fits": is_ok, "message": message}


async def lower_peak(server: Server, uri: str) -> Result:
    """Test edits that lower the peak of the step, and offer those that passed as code actions."""
    path = path_of(uri)
    if path is not None and (answered := not_saved(server, path, "edits are tested")) is not None:
        return answered
    answer = await _step_of(server, uri, advises=True)
    if not isinstance(answer, Fit):
        return answer
    message = advice_words(answer)
    server.say(message, types.MessageType.Info)
    return {
        "peakBytes": answer.step_peak_bytes,
        "edits": len(tuple(advice_fixes(answer))),
        "message": message,
    }


async def _step_of(server: Server, uri: str, *, advises: bool = False) -> Fit | Result:
    """Run `aotlens fit` and hold its result; return what the client gets if there is none."""
    path = script_of(server, uri)
    if not isinstance(path, str):
        return path
    say_unsaved(server, path)
    answer = await server.step_runs.run(path, server.settings, server.tracer.cwd, advises=advises)
    if isinstance(answer, Failure):
        return failed(server, answer)
    server.publish_all()
    server.refresh()
    return answer
