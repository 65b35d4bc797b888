"""The columns of a table whose rows workers claim."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

__all__ = ["Leased"]


class Leased:
    """Columns of rows that workers claim for a time (see ``storage.grading.leases``).

    ``attempts`` counts the claims from 1, and ``faults`` those that ended with a fault of ours. ``claim_token`` belongs
    to the one worker whose results are accepted; after ``lease_until`` that worker counts as lost. ``not_before``:
    the end of a waiting row's backoff, before which it is not claimed.
    """

    attempts: Mapped[int] = mapped_column(default=0)
    faults: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[datetime | None]
    claim_token: Mapped[str | None] = mapped_column(index=True, unique=True)
    claim_worker: Mapped[str | None]
    lease_until: Mapped[datetime | None] = mapped_column(index=True)
