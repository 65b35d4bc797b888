"""A candidate's build request, validated, because it comes from a process that runs the candidate's code."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

__all__ = ["SHARED_NAME", "BuildRequest", "InvalidRequest"]

SHARED_NAME: Final = "kerneljudge_extension"
"""The name of every built extension that does not depend on its name: the same sources are built once."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,200}")
_LINE_DIRECTIVE: Final = re.compile(r"^[ \t]*(#|%:|\?\?=)\s*(line\b|\d)", re.MULTILINE)
_LISTS: Final = (
    "cpp_sources",
    "cuda_sources",
    "extra_cflags",
    "extra_cuda_cflags",
    "extra_ldflags",
    "extra_include_paths",
)
_FLAGS: Final = {"with_pytorch_error_handling": True, "no_implicit_headers": False, "is_python_module": True}
_MODULE_OF_ANY_NAME: Final = re.compile(r"PYBIND11_MODULE\s*\(\s*TORCH_EXTENSION_NAME\b")
_DEPENDS_ON_NAME: Final = re.compile(r"TORCH_EXTENSION_NAME|PYBIND11_MODULE|PyInit_|PyMODINIT_FUNC")
_MAX_BYTES: Final = 4 * 2**20


class InvalidRequest(ValueError):
    """The request cannot be built as it stands; the message is for the candidate's author."""


@dataclass(frozen=True)
class BuildRequest:
    """One call of ``load_inline`` (``files`` empty) or ``load`` (``files``: name to content).

    ``headers``, by name, lie beside the sources, or in folders beside them (``detail/a.h``).
    """

    name: str
    cpp_sources: tuple[str, ...] = ()
    cuda_sources: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    functions: tuple[tuple[str, str], ...] | None = None
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_ldflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()
    with_cuda: bool | None = None
    with_pytorch_error_handling: bool = True
    no_implicit_headers: bool = False
    is_python_module: bool = True

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> BuildRequest:
        """Validate the request. Raises ``InvalidRequest``."""
        name = data.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidRequest(f"the extension's name must be a Python identifier, not {str(name)[:100]!r}")
        fields: dict[str, Any] = {field: _texts(data, field) for field in _LISTS}
        fields |= {field: _flag(data, field, default) for field, default in _FLAGS.items()}
        with_cuda = data.get("with_cuda")
        if with_cuda is not None and not isinstance(with_cuda, bool):
            raise InvalidRequest("with_cuda must be true, false or None")
        request = cls(
            name=name,
            functions=_functions(data.get("functions")),
            files=_files(data.get("files")),
            headers=_files(data.get("headers"), in_folders=True),
            with_cuda=with_cuda,
            **fields,
        )
        if sum(map(len, request.texts)) > _MAX_BYTES:
            raise InvalidRequest(f"more than {_MAX_BYTES} characters of source")
        return request

    @classmethod
    def restored(cls, data: Mapping[str, Any]) -> BuildRequest:
        """Build a request from the fields of one that was parsed before, as JSON has them."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        for name in ("files", "headers", "functions"):
            if fields[name] is not None:
                fields[name] = tuple((one, other) for one, other in fields[name])
        return cls(**fields)

    @property
    def uses_cuda(self) -> bool:
        """Whether the build uses CUDA, by torch's rule where ``with_cuda`` is not given."""
        if self.with_cuda is not None:
            return self.with_cuda
        return bool(self.cuda_sources) or any(name.endswith((".cu", ".cuh")) for name, _ in self.files)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every source and header."""
        return (*self.cpp_sources, *self.cuda_sources, *(text for _, text in (*self.files, *self.headers)))

    @property
    def renames_lines(self) -> bool:
        """Whether a source names its own file, so that the places in a compiler's messages cannot be trusted."""
        return any(_LINE_DIRECTIVE.search(text.replace("\\\n", "")) for text in self.texts)

    @property
    def shared(self) -> BuildRequest:
        """The same request under a name that all of its kind share; itself where its name matters.

        The name must decide only the name of the module that torch or pybind11's macro makes.
        """
        texts = (*self.texts, *self.extra_cflags, *self.extra_cuda_cflags, *self.extra_ldflags)
        without = [_MODULE_OF_ANY_NAME.sub("", text.replace("\\\n", "")) for text in texts]
        makes_module = self.functions is not None or any(_MODULE_OF_ANY_NAME.search(text) for text in texts)
        depends = any(_DEPENDS_ON_NAME.search(text) for text in without)
        return replace(self, name=SHARED_NAME) if self.is_python_module and makes_module and not depends else self

    def key(self, toolchain: Mapping[str, Any]) -> str:
        """The content address of this request's build with ``toolchain``: 64 hex digits."""
        canonical = json.dumps([asdict(self), dict(toolchain)], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _texts(data: Mapping[str, Any], field: str) -> tuple[str, ...]:
    value = data.get(field, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidRequest(f"{field} must be a list of texts")
    return tuple(value)


def _flag(data: Mapping[str, Any], field: str, default: bool) -> bool:
    value = data.get(field, default)
    if not isinstance(value, bool):
        raise InvalidRequest(f"{field} must be true or false")
    return value


def _functions(value: object) -> tuple[tuple[str, str], ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = [value]
    pairs = (
        value.items()
        if isinstance(value, dict)
        else [(item, item) for item in value]
        if isinstance(value, list)
        else None
    )
    if pairs is None or not all(isinstance(text, str) for pair in pairs for text in pair):
        raise InvalidRequest("functions must be a list of names, or a dict of names and docstrings")
    return tuple((name, text) for name, text in pairs)


def _files(value: object, *, in_folders: bool = False) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise InvalidRequest("files must map names to texts")
    for name, text in value.items():
        parts = name.split("/") if in_folders else [name]
        if not isinstance(text, str) or not all(map(_FILE_NAME.fullmatch, parts)):
            raise InvalidRequest(f"{name!r} is no usable name of a source file")
    return tuple(value.items())
