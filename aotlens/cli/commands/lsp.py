"""`aotlens lsp`: the language server, which parses its own options."""

import gc


def main(argv: list[str]) -> int:
    gc.disable()  # all that is loaded stays alive; `serve` turns it on again
    from lsp_server.server import main as serve  # pygls takes 0.3 s

    return serve(argv)
