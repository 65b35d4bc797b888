"""``python -m api``: serve the API of the current settings."""

from __future__ import annotations

import contextlib
import logging
import os
import sys

from api.server import make_server
from evaluator import logs
from evaluator.errors import ProblemError
from evaluator.problems.loading import load_problems
from runtime import tracing
from runtime.settings import InvalidSettings, Settings, misspelt
from storage.database import DatabaseUnusable, prepare_database


def main() -> int:
    """Serve until SIGINT or SIGTERM. Return 2 where the settings are unusable, and 3 where the service cannot start."""
    logs.configure("text", "INFO")
    try:
        settings = Settings.load()
        logs.configure(settings.log_format, settings.log_level)
        for line in misspelt(os.environ):
            logging.getLogger("api").warning("%s", line)
        tracing.configure("kerneljudge-api")
        # The application reads them as well. Reading them here reports a mistake in one line, without a traceback.
        load_problems(settings.problems_dir, settings.extra_problems_dir)
        server = make_server(settings)
        prepare_database(settings)
    except (InvalidSettings, ProblemError, DatabaseUnusable) as error:
        logging.getLogger("api").error("%s", error)
        return 3 if isinstance(error, DatabaseUnusable) else 2
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    return 0 if server.started else 3


if __name__ == "__main__":
    sys.exit(main())
