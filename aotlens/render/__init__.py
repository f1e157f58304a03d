"""Writers of reports and findings: text, HTML, Markdown, GitHub, SARIF, JSON, and traces for other tools."""
