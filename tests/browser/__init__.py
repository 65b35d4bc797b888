"""Pages in a real browser. A package, so that what is set up for it ends with it (see ``conftest``)."""
