"""What can go wrong between a client and the service.

    ClientError
    ├── ServiceUnreachable   no connection, no answer in time, or still busy after all retries
    ├── RequestRefused       the service understood and said no (4xx); names the fields
    ├── NoAnswer             what came back is not of this API
    └── BadKey               what was given as a key cannot be one

A verdict about a candidate is none of these: it is in the record.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["BadKey", "ClientError", "NoAnswer", "RequestRefused", "ServiceUnreachable"]


class ClientError(Exception):
    """Base of everything that the client raises."""


class ServiceUnreachable(ClientError):
    """The service cannot be reached or cannot do its work at the moment."""


class NoAnswer(ClientError):
    """The answer is none of this API's."""


class BadKey(ClientError):
    """What was given as a key of the API cannot be one."""


class RequestRefused(ClientError):
    """The request is at fault. ``fields`` holds a message for each field that is."""

    def __init__(self, status: int, detail: str, fields: Mapping[str, str]) -> None:
        super().__init__(detail)
        self.status = status
        self.fields = dict(fields)
