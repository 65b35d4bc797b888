"""The builder: requests from an untrusted side, the cache, and what a compiler says."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.builder.builder import Builder
from evaluator.builder.cache import ArtifactCache, BuildFailure
from evaluator.builder.diagnostics import first_error, foreign_header_missing
from evaluator.builder.request import SHARED_NAME, BuildRequest, InvalidRequest
from evaluator.sandbox.confinement import Confinement
from evaluator.sandbox.filesystem import Root, visible_paths

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from(["name", "functions", "files", "cpp_sources", "with_cuda", "extra_cflags"]), _JSON)
)
def test_an_arbitrary_request_is_parsed_or_refused(data: dict[str, Any]) -> None:
    try:
        request = BuildRequest.parse(data)
    except InvalidRequest:
        return
    assert request.key({}) == BuildRequest.parse(data).key({})


@pytest.mark.parametrize("name", ["", "../evil", "a b", "a" * 300, 7, None, "x.so", "-shared"])
def test_a_name_that_is_no_identifier_is_refused(name: object) -> None:
    with pytest.raises(InvalidRequest, match="identifier"):
        BuildRequest.parse({"name": name})


@pytest.mark.parametrize("file", ["/etc/passwd", "../x.cpp", "", "a/b.cpp", "-x.cpp"])
def test_a_source_file_stays_in_its_folder(file: str) -> None:
    with pytest.raises(InvalidRequest):
        BuildRequest.parse({"name": "x", "files": {file: ""}})


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"cpp_sources": ["int x;"]},
        {"cuda_sources": ["int x;"]},
        {"functions": ["f"]},
        {"extra_cflags": ["-O0"]},
        {"extra_cuda_cflags": ["-O0"]},
        {"extra_ldflags": ["-lm"]},
        {"extra_include_paths": ["/usr/include"]},
        {"with_cuda": True},
        {"with_pytorch_error_handling": False},
        {"no_implicit_headers": True},
    ],
)
def test_everything_that_decides_the_result_is_in_the_key(change: dict[str, Any]) -> None:
    base = {"name": "x", "cpp_sources": ["int y;"]}
    assert BuildRequest.parse({**base, **change}).key({}) != BuildRequest.parse(base).key({})
    assert BuildRequest.parse(base).key({"torch": "1"}) != BuildRequest.parse(base).key({"torch": "2"})


_MODULE = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }'


@pytest.mark.parametrize(
    ("change", "shared"),
    [
        ({"functions": ["f"]}, True),
        ({"cpp_sources": [_MODULE]}, True),
        ({"cuda_sources": [_MODULE], "functions": []}, True),
        ({"cpp_sources": ["int x() { return 1; }"], "functions": ["x"]}, True),
        ({}, False),
        ({"functions": ["f"], "is_python_module": False}, False),
        ({"cpp_sources": ["PYBIND11_MODULE(x, m) {}"]}, False),
        ({"cpp_sources": [_MODULE + "\nTORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}"]}, False),
        ({"cpp_sources": [_MODULE + "\nTORCH_LIBRARY(TORCH_EXTENSION_\\\nNAME, m) {}"]}, False),
        ({"functions": ["f"], "cpp_sources": ["PyMODINIT_FUNC PyInit_x() { return 0; }"]}, False),
        ({"functions": ["f"], "extra_cflags": ["-DWHO=TORCH_EXTENSION_NAME"]}, False),
        ({"functions": ["f"], "headers": {"a.h": "#define WHO TORCH_EXTENSION_NAME"}}, False),
    ],
)
def test_a_name_counts_only_where_it_makes_a_difference(change: dict[str, Any], shared: bool) -> None:
    one, other = (BuildRequest.parse({"name": name, "cpp_sources": ["int y;"], **change}) for name in ("x", "y"))
    assert (one.shared.key({}) == other.shared.key({})) == shared
    assert one.shared.name == (SHARED_NAME if shared else "x")


def test_a_build_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    ended = threading.Event()
    threading.Timer(0.5, ended.set).start()
    begin = time.monotonic()
    result, _ = _builder(tmp_path).build(BuildRequest.parse({"name": "x", "cpp_sources": ["int y;"]}), 300, ended)
    assert isinstance(result, BuildFailure)
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "/b/main.cpp: In f:\n/b/main.cpp:4:1: error: 'Tensr' does not name a type\n    4 | Tensr y;\n      | ^~~\n",
            "main.cpp:4: 'Tensr' does not name a type\n    4 | Tensr y;\n      | ^~~",
        ),
        (
            '/b/cuda.cu(26): error: expected a ";"\n      m.impl(x;\n      ^\n\n1 error detected\n',
            'cuda.cu:26: expected a ";"\n      m.impl(x;\n      ^',
        ),
        (
            "/usr/include/c++/12/x.h:9:1: error: in a header\n/b/main.cpp:2:1: error: mine\n",
            "main.cpp:2: mine",
        ),
        ("main.o: in function `f':\nmain.cpp:(.text+0x1): undefined reference to `g'\n", "undefined reference to `g'"),
        ("nvcc fatal   : Unknown option '--nonsense'\n", "Unknown option '--nonsense'"),
        ("everything is fine\n", None),
    ],
)
def test_the_first_real_error_is_found(log: str, expected: str | None) -> None:
    assert first_error(log, "/b") == expected


@pytest.mark.parametrize(
    ("line", "header"),
    [
        (
            "/t/include/ATen/cuda/CUDAContextLight.h:8:10: fatal error: cusparse.h: No such file or directory",
            "cusparse.h",
        ),
        ('/t/include/ATen/cuda/X.h(8): catastrophic error: cannot open source file "cusparse.h"', "cusparse.h"),
        ("/b/main.cpp:2:10: fatal error: mine.h: No such file or directory", None),
        ("/t/include/x.h:8:10: error: 'y' was not declared", None),
    ],
)
def test_a_header_that_the_toolkit_lacks_is_told_from_one_that_the_candidate_invents(
    line: str, header: str | None
) -> None:
    assert foreign_header_missing(line, "/b") == header


def _builder(tmp_path: Path) -> Builder:
    import os
    import sys

    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    confinement = Confinement(Root(visible_paths(), (), (), 2**30), 2**32, 256, 2**30)
    return Builder(ArtifactCache(tmp_path / "cache"), {"nvcc": None}, environment, tmp_path, confinement, slots=1)


def test_a_build_that_takes_too_long_is_ended_with_everything_it_started(tmp_path: Path) -> None:
    result, _ = _builder(tmp_path).build(
        BuildRequest.parse({"name": "x", "cpp_sources": ["int y;"]}), 0.5, threading.Event()
    )
    assert isinstance(result, BuildFailure)
    assert result.timed_out
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("build-")]


def test_cuda_sources_without_nvcc_are_a_matter_of_the_machine(tmp_path: Path) -> None:
    result, _ = _builder(tmp_path).build(
        BuildRequest.parse({"name": "x", "cuda_sources": ["int y;"]}), 10, threading.Event()
    )
    assert isinstance(result, BuildFailure)
    assert result.toolchain_missing
