"""``python -m storage.migrate``: bring the database of the current settings to the newest schema."""

from __future__ import annotations

import sys

from runtime.settings import InvalidSettings, Settings
from storage.database import migrate

if __name__ == "__main__":
    try:
        migrate(Settings.load())
    except InvalidSettings as error:
        print(f"storage.migrate: {error}", file=sys.stderr)
        sys.exit(2)
