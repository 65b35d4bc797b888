"""The HTTP client and the command line. Needs neither torch nor the server's packages."""

from __future__ import annotations

from client.errors import ClientError, NoAnswer, RequestRefused, ServiceUnreachable
from client.http import Client, Event

__all__ = ["Client", "ClientError", "Event", "NoAnswer", "RequestRefused", "ServiceUnreachable"]
