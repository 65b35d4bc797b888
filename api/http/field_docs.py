"""The docstrings of the records' fields, for the OpenAPI document.

Pydantic can read them too (``use_attribute_docstrings``). It would parse a module for each record and each route at
every start of the API, and would leave out inherited fields.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache

from typing_extensions import get_original_bases, is_typeddict

from kerneljudge import records

__all__ = ["field_docs"]


def field_docs() -> dict[str, dict[str, str]]:
    """Return the docstrings of fields, in one paragraph each, by record and field."""
    found = (getattr(records, name) for name in records.__all__)
    return {record.__name__: _docs_of(record) for record in found if is_typeddict(record)}


def _docs_of(record: type) -> dict[str, str]:
    docs: dict[str, str] = {}
    for base in get_original_bases(record):
        if isinstance(base, type) and is_typeddict(base):
            docs |= _docs_of(base)
    return {**docs, **_written_in(record.__module__)[record.__name__]}


@cache
def _written_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings that are written in ``module``, by class and field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: _fields(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _fields(node: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for field, doc in zip(node.body, node.body[1:], strict=False):
        match field, doc:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs
