"""The bodies of requests and answers, as pydantic models."""
