"""``load_inline`` and ``load`` of ``torch.utils.cpp_extension``, answered by the builder.

The candidate's call is bound to torch's own signature, so that a wrong argument fails as it would with torch. The
request is then built outside of this process, and only the finished library is loaded.
"""

from __future__ import annotations

import difflib
import functools
import importlib.machinery
import importlib.util
import inspect
import os
import shutil
import socket
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils.cpp_extension as torch_extension

from evaluator.protocol import messages

__all__ = ["ExtensionClient"]

_LIST_ARGUMENTS = (
    "cpp_sources",
    "cuda_sources",
    "extra_cflags",
    "extra_cuda_cflags",
    "extra_ldflags",
    "extra_include_paths",
)
_PASSED_ON = (
    "functions",
    "with_cuda",
    "is_python_module",
    "with_pytorch_error_handling",
    "no_implicit_headers",
)
_INCLUDED_SUFFIXES = frozenset(
    {".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl", ".ipp", ".tpp", ".c", ".cc", ".cpp", ".cxx", ".cu"}
)
"""Source files are included as well, now and then."""
_MAX_INCLUDED = 500
_FLAGS = ("extra_cflags", "extra_cuda_cflags")


class Placeholder(types.ModuleType):
    """Stands for an extension while a module is imported only to find its extensions."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def unavailable(*_args: object, **_kwargs: object) -> None:
            raise RuntimeError(
                f"{self.__name__}.{name} was called while the module was being imported to find extensions"
            )

        return unavailable


class ExtensionClient:
    """Sends build requests over ``connection`` and loads the finished libraries."""

    def __init__(self, connection: socket.socket, directory: Path, *, placeholders: bool) -> None:
        self._connection = connection
        self._directory = directory / "extensions"
        self._placeholders = placeholders

    def install(self) -> None:
        """Put this client in the place of torch's own functions, and of the one beneath them.

        ``CUDAExtension`` and ``BuildExtension`` are left as they are: they compile in the runner's own folder.
        """
        torch_extension.load_inline = self._bound(torch_extension.load_inline, self._load_inline)
        torch_extension.load = self._bound(torch_extension.load, self._load)
        torch_extension._jit_compile = self._bound(torch_extension._jit_compile, self._load)

    def _bound(self, original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs:
                if name not in signature.parameters:
                    near = difflib.get_close_matches(name, signature.parameters, n=1, cutoff=0.6)
                    suggestion = f"; did you mean {near[0]!r}?" if near else ""
                    raise TypeError(f"{original.__name__}() got an unexpected keyword argument {name!r}{suggestion}")
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return replacement(bound.arguments)

        return call

    def _load_inline(self, arguments: dict[str, Any]) -> Any:
        return self._build(arguments, {}, [])

    def _load(self, arguments: dict[str, Any]) -> Any:
        sources = arguments.pop("sources")
        paths = [Path(source) for source in ([sources] if isinstance(sources, str) else sources)]
        files = {path.name: path.read_text() for path in paths}
        if len(files) != len(paths):
            raise ValueError("load() with two sources of the same file name is not supported here")
        return self._build(arguments, files, [path.parent for path in paths])

    def _build(self, arguments: dict[str, Any], files: dict[str, str], folders: list[Path]) -> Any:
        if arguments.get("sycl_sources") or arguments.get("with_sycl"):
            raise RuntimeError("SYCL extensions cannot be built here")
        if arguments.get("is_standalone"):
            raise RuntimeError("standalone executables cannot be built here: load a module")
        name = str(arguments["name"])
        request: dict[str, Any] = {"name": name, "files": files}
        for argument in _LIST_ARGUMENTS:
            value = arguments.get(argument)
            request[argument] = [value] if isinstance(value, str) else [str(item) for item in value or []]
        # The files that the candidate's own files include travel along: the builder does not see them.
        own = [path for path in map(Path, request["extra_include_paths"]) if self._is_own(path)]
        for argument in _FLAGS:
            request[argument] = [self._own_flag(flag, own) for flag in request[argument]]
        beside = arguments.get("build_directory")
        if beside and self._is_own(Path(beside)):
            own.append(Path(beside))  # torch compiles there, and finds the files in it
        headers: dict[str, str] = {}
        for folder in dict.fromkeys([*own, *folders]):
            headers |= self._included(folder)
        request["headers"] = {header: text for header, text in headers.items() if header not in files}
        request["extra_include_paths"] = [
            "." if self._is_own(Path(path)) else path for path in request["extra_include_paths"]
        ]
        request.update({argument: arguments[argument] for argument in _PASSED_ON if argument in arguments})
        messages.send(self._connection, request)
        reply, descriptors = messages.receive(self._connection)
        if "error" in reply:
            raise RuntimeError(f"Error building extension {name!r}: {reply['error']}")
        if self._placeholders:
            for descriptor in descriptors:
                os.close(descriptor)
            return Placeholder(name)
        if not descriptors:
            raise RuntimeError(f"extension {name!r} compiles, and cannot be linked or loaded without CUDA's libraries")
        path = self._place(name, descriptors[0])
        if not arguments.get("is_python_module", True):
            torch.ops.load_library(path)  # type: ignore[no-untyped-call] # torch leaves it unannotated
            return path
        return _load_module(reply["built_as"], Path(path))

    def _own_flag(self, flag: str, own: list[Path]) -> str:
        """Replace the candidate's folders in ``flag`` by the build's own, and add them to ``own``."""
        words = flag.split()
        for number, word in enumerate(words):
            folder = word.removeprefix("-I")
            if word.startswith("-I") and folder and self._is_own(Path(folder)):
                own.append(Path(folder))
                words[number] = "-I."
        return " ".join(words) if "-I." in words else flag

    def _included(self, folder: Path) -> dict[str, str]:
        """Return the files that could be included from ``folder`` and its subfolders, by their names from there."""
        found: dict[str, str] = {}
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.suffix not in _INCLUDED_SUFFIXES or path.is_relative_to(self._directory) or not path.is_file():
                continue
            if len(found) == _MAX_INCLUDED:
                break
            found[path.relative_to(folder).as_posix()] = path.read_text(errors="surrogateescape")
        return found

    def _is_own(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self._directory.parent)

    def _place(self, name: str, descriptor: int) -> str:
        """Copy the library to torch's place for it, in a folder of this runner's alone."""
        folder = self._directory / name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.so"
        if path.exists():
            # A module's second build under the same name must not overwrite the mapped library of the first.
            path = folder / f"{name}_v{len(list(folder.iterdir()))}.so"
        with open(descriptor, "rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
        return str(path)


def _load_module(built_as: str, path: Path) -> types.ModuleType:
    """Load the module. ``built_as``: the name inside the library; the module's visible name is its file's."""
    name = path.stem
    loader = importlib.machinery.ExtensionFileLoader(built_as, os.fspath(path))
    spec = importlib.util.spec_from_loader(built_as, loader, origin=os.fspath(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # pybind11 takes modules of one name for the same module, and initialises only the first.
    spec.name = module.__name__ = name
    loader.exec_module(module)
    if sys.modules.get(built_as) is module:
        # Python itself has entered it, as it would have under the other name.
        del sys.modules[built_as]
        sys.modules[name] = module
    return module
