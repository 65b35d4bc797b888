"""``python -m storage.migrate``: bring the database of the current settings to the newest schema."""

from __future__ import annotations

from storage.database import migrate
from storage.settings import Settings

if __name__ == "__main__":
    migrate(Settings())
