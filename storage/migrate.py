"""``python -m storage.migrate``: bring the database of the current settings to the newest schema."""

from __future__ import annotations

import sys
from typing import Final

from runtime.settings import InvalidSettings, Settings
from storage.database import DatabaseUnusable, prepare_database

_PATIENCE_S: Final = 60.0
"""A server that starts together with this process, and makes its database first, takes some seconds."""


def main() -> int:
    """Return 2 where the settings are unusable, and 3 where the database is."""
    try:
        prepare_database(Settings.load(), patience_s=_PATIENCE_S)
    except (InvalidSettings, DatabaseUnusable) as error:
        print(f"storage.migrate: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidSettings) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
