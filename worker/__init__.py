"""The worker processes: Celery tasks that claim, build or evaluate, and record.

One process for each device evaluates, and one builds. Torch stays in the processes that ``evaluator.engine`` starts.
"""

from __future__ import annotations

import sys

# ``python -m worker`` puts the working folder first on the path, and a candidate's ``json.py`` may lie there. The entry
# is removed before any import, unless this package was found in that folder.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != __path__[0].rpartition("/")[0]:
    del sys.path[0]
