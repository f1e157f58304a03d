"""`aotlens lsp`: the language server, which parses its own options."""

import gc


def main(argv: list[str]) -> int:
    gc.disable()  # all that is loaded stays alive; `serve` turns it on again
    from lsp_server.start import main as serve  # with the server's modules

    return serve(argv)
