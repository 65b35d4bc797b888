"""The HTTP API and its pages. Routes only translate; what they say lives in ``storage``."""

from __future__ import annotations

import sys

# ``python -m api`` has put the working folder first, where a candidate's ``json.py`` may lie: away with it, before
# anything is imported, unless that is where this package was found.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != __path__[0].rpartition("/")[0]:
    del sys.path[0]
