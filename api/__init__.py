"""The HTTP API and its pages. Routes only translate between HTTP and ``storage``, which has the logic."""

from __future__ import annotations

import sys

# ``python -m api`` puts the working folder first on the path, where a candidate's ``json.py`` may lie. Remove it before
# anything is imported, unless this package was found there.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != __path__[0].rpartition("/")[0]:
    del sys.path[0]
