"""The processes that do the work: Celery tasks that claim, build or evaluate, and record.

One process for each device evaluates, and one builds. Torch stays in the processes that
``evaluator.engine`` starts.
"""

from __future__ import annotations

import sys

# ``python -m worker`` has put the working folder first, where a candidate's ``json.py`` may lie: away with it, before
# anything is imported, unless that is where this package was found.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != __path__[0].rpartition("/")[0]:
    del sys.path[0]
