"""The pages for people. They are rendered here, escaped by Jinja, and work without scripts.

Each module has the routes of one page. ``rendering`` is common to all; ``charts`` and ``source`` prepare the content
that templates draw.
"""

from __future__ import annotations

from fastapi import APIRouter

from api.pages import batch, home, overall, problem, reading, signing_in, submission, submitting, workers
from api.pages.errors import error_page, wants_page

__all__ = ["error_page", "router", "wants_page"]

router = APIRouter(include_in_schema=False)
for _module in (home, submitting, signing_in, problem, submission, batch, overall, workers, reading):
    router.include_router(_module.router)
