"""Tables, sessions, queries, migrations and the hand-over to the queue; shared by the API and the workers.

The database is the truth and a message only a wake-up: a submission is durable when its row is committed,
and a message carries nothing but its id.
"""

from __future__ import annotations

import sys

# ``python -m storage.migrate`` has put the working folder first, where a candidate's ``json.py`` may lie: away with it,
# before anything is imported, unless that is where this package was found.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != __path__[0].rpartition("/")[0]:
    del sys.path[0]
