"""The errors between a client and the service.

    ClientError
    ├── ServiceUnreachable   no connection, no answer in time, or still busy after all retries
    ├── RequestRefused       the service understood the request and refused it (4xx); names the fields
    ├── NoAnswer             the answer is not one of this API
    └── BadKey               the given key cannot be one of the API

A verdict about a candidate is none of these. It is in the record.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["BadKey", "ClientError", "NoAnswer", "RequestRefused", "ServiceUnreachable"]


class ClientError(Exception):
    """The base of all errors that the client raises."""


class ServiceUnreachable(ClientError):
    """The service cannot be reached, or cannot do its work at the moment."""


class NoAnswer(ClientError):
    """The answer is not one of this API."""


class BadKey(ClientError):
    """The given key cannot be a key of the API."""


class RequestRefused(ClientError):
    """The request is at fault. ``fields`` has a message for each wrong field."""

    def __init__(self, status: int, detail: str, fields: Mapping[str, str]) -> None:
        super().__init__(detail)
        self.status = status
        self.fields = dict(fields)
