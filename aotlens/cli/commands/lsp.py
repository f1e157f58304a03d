"""`aotlens lsp`: the language server, which parses its own options."""


def main(argv: list[str]) -> int:
    from lsp_server.server import main as serve  # pygls takes 0.3 s

    return serve(argv)
