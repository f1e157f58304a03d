"""`aotlens lsp`: the options, the streams, and the first answer, before the server itself is loaded.

Invariant: nothing is imported here that loads pygls before `initialize` is answered from the cache.
"""

import argparse

from lsp_server.first_answer import answer_first
from lsp_server.streams import LOOPBACK, guard_standard_streams, log_to

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Serve one client; return 0 after an orderly end, 1 when the client left without `shutdown`."""
    options = _parser().parse_args(argv)
    log_to(options.log_file, options.verbose)
    if options.tcp is not None:
        from lsp_server.server import serve_one  # with pygls

        return serve_one(options.host, options.tcp)
    reader, writer = guard_standard_streams()
    replayed, first = answer_first(reader, writer)
    from lsp_server.server import serve_streams  # with pygls

    return serve_streams(replayed, writer, first)


def _parser() -> argparse.ArgumentParser:
    about = "The language server, on stdio by default."
    parser = argparse.ArgumentParser(prog="aotlens lsp", description=about, allow_abbrev=False)
    parser.add_argument("--stdio", action="store_true", help="serve on stdio (the default; editors pass it)")
    parser.add_argument(
        "--tcp", type=int, metavar="PORT", help=("serve one connection on this port; 0 takes a free port")
    )
    parser.add_argument(
        "--host", default=LOOPBACK, help="for --tcp (default: %(default)s, this machine only)"
    )
    parser.add_argument("--clientProcessId", type=int, help=argparse.SUPPRESS)  # editors pass it
    parser.add_argument(
        "--log-file", metavar="FILE", help=("write a log to this file; otherwise nothing is logged")
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log every message too")
    return parser
