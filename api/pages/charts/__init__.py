"""Charts of pages. They are computed here, and the templates turn them into SVG."""
