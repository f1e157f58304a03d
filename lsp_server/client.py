"""The client's capabilities.

Invariant: a field here decides everything that depends on a capability, and a client that reports none is
sent only messages that all clients accept.
"""

from dataclasses import dataclass

from lsprotocol import types


@dataclass(frozen=True, slots=True)
class Client:
    """One client's capabilities, as far as the server uses them; the defaults are those of a client without
    any."""

    diagnostic_versions: bool = False
    diagnostic_related: bool = False
    diagnostic_links: bool = False
    """Shows the page of a rule behind its code."""
    diagnostic_tags: frozenset[types.DiagnosticTag] = frozenset()
    markdown: bool = False
    action_literals: bool = False
    """Takes code actions that hold an edit; other clients take commands only."""
    action_preferred: bool = False
    versioned_edits: bool = False
    lenses: bool = False
    nested_symbols: bool = False
    progress: bool = False
    shows_documents: bool = False
    gives_settings: bool = False
    """Answers `workspace/configuration`."""
    refreshes_hints: bool = False
    refreshes_lenses: bool = False
    watches_files: bool = False
    """Reports files that change on disk, once it has registered for them."""


def client_of(capabilities: types.ClientCapabilities) -> Client:
    """Return the capabilities that a client sent with `initialize`."""
    text = capabilities.text_document or types.TextDocumentClientCapabilities()
    workspace = capabilities.workspace or types.WorkspaceClientCapabilities()
    window = capabilities.window or types.WindowClientCapabilities()
    pushed = text.publish_diagnostics or types.PublishDiagnosticsClientCapabilities()
    action = text.code_action or types.CodeActionClientCapabilities()
    formats = text.hover.content_format if text.hover else None
    return Client(
        diagnostic_versions=bool(pushed.version_support),
        diagnostic_related=bool(pushed.related_information),
        diagnostic_links=bool(pushed.code_description_support),
        diagnostic_tags=frozenset(pushed.tag_support.value_set if pushed.tag_support else ()),
        markdown=types.MarkupKind.Markdown in (formats or ()),
        action_literals=action.code_action_literal_support is not None,
        action_preferred=bool(action.is_preferred_support),
        versioned_edits=bool(workspace.workspace_edit and workspace.workspace_edit.document_changes),
        lenses=text.code_lens is not None,
        nested_symbols=bool(
            text.document_symbol and text.document_symbol.hierarchical_document_symbol_support
        ),
        progress=bool(window.work_done_progress),
        shows_documents=bool(window.show_document and window.show_document.support),
        gives_settings=bool(workspace.configuration),
        refreshes_hints=bool(workspace.inlay_hint and workspace.inlay_hint.refresh_support),
        refreshes_lenses=bool(workspace.code_lens and workspace.code_lens.refresh_support),
        watches_files=bool(
            workspace.did_change_watched_files and workspace.did_change_watched_files.dynamic_registration
        ),
    )
