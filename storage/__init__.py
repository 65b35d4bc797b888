"""Tables, sessions, queries, migrations and the hand-over to the queue; shared by the API and the workers.

The database holds all state, and a message is only a wake-up. A submission is durable when its row is committed. A
message carries only the submission's id.
"""

from __future__ import annotations

import sys

# ``python -m storage.migrate`` puts the working folder first on the path, and a candidate's ``json.py`` may lie there.
# The entry is removed before any import, unless this package was found in that folder.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != __path__[0].rpartition("/")[0]:
    del sys.path[0]
