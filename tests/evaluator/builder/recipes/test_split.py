"""Fast builds of unmodified CUDA sources: reading them, cutting them in two, and putting the two together again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.builder.builder import Builder
from evaluator.builder.cache import Artifact, ArtifactCache, BuildFailure
from evaluator.builder.recipes.ladder import RECIPES, Recipe
from evaluator.builder.recipes.preparation import find, make
from evaluator.builder.recipes.split import Refused, SplitResult, SplitToolchain, build, is_prepared, plan, prepare
from evaluator.builder.recipes.split.chunks import Form, chunks_of
from evaluator.builder.recipes.split.flags import cuda_host_flags, cxx_flags, link_flags
from evaluator.builder.recipes.split.headers import HOST_SHIM, device_prelude
from evaluator.builder.recipes.split.lexer import Kind, definition_of, included, tokens_of
from evaluator.builder.recipes.split.objects import ObjectFile, Registered, registered
from evaluator.builder.recipes.split.prepare import clang_command
from evaluator.builder.recipes.split.preparing import SPLIT_HEADERS, load_toolchain
from evaluator.builder.recipes.split.recipe import REPORTING, instances, unresolved
from evaluator.builder.recipes.split.sources import sources_of
from evaluator.builder.recipes.split.units import Units, headers_for, split
from evaluator.builder.request import BuildRequest
from evaluator.devices.discovery import cuda_architectures, nvcc_path
from evaluator.processes.environment import ProcessEnvironment
from tests.build_sources import BuildSource, load_build_source, load_build_sources

_CLANG = shutil.which("clang++-19") or shutil.which("clang++")
_SOURCES = load_build_sources()
_KERNEL = "__global__ void k(float* x) { x[0] = 1.f; }\n"
_TOOLCHAIN = SplitToolchain(
    torch="2.11.0+cu130",
    cxx=("c++",),
    nvcc=("/usr/local/cuda/bin/nvcc",),
    clang="/usr/bin/clang++",
    mold=None,
    cxx_flags=("-fPIC",),
    cuda_flags=("--expt-relaxed-constexpr",),
    architecture_flags=("-gencode=arch=compute_90,code=sm_90",),
    standard="c++20",
    cuda_standard="c++20",
    link_flags=("-lc10",),
    cxx_folders=("/usr/include/c++/12", "/usr/include/x86_64-linux-gnu/c++/12"),
    cuda_folder="/usr/local/cuda",
    versions=("GCC 13", "nvcc 13.0", "clang version 19.1.7"),
    can_link=True,
)


def _texts(source: str) -> list[str]:
    return [token.text for token in tokens_of(source)]


# --- The lexer ---


def test_comments_are_left_out_and_hide_what_is_in_them() -> None:
    assert _texts("a /* __global__ \n { */ b // c {\nd // e \\\n f }\ng") == ["a", "b", "d", "g"]


def test_strings_characters_and_separators_are_single_tokens() -> None:
    assert _texts("""f("a\\"{", '{', '\\'', L"w", u8"x");""")[2:-2:2] == ['"a\\"{"', "'{'", "'\\''", 'L"w"', 'u8"x"']
    assert _texts("1'000'000 1.e-5f .5f 0x1p-3 1u")[:5] == ["1'000'000", "1.e-5f", ".5f", "0x1p-3", "1u"]


def test_a_raw_string_ends_at_its_own_fence() -> None:
    assert _texts('R"ab( ") )x" { )ab" + R"(")"') == ['R"ab( ") )x" { )ab"', "+", 'R"(")"']


def test_a_directive_is_one_token_up_to_the_end_of_its_logical_line() -> None:
    tokens = tokens_of("#define A \\\n  { \\\n  } /* more\n lines */ x\nint y;")
    assert tokens[0].kind is Kind.DIRECTIVE
    assert tokens[0].text.endswith("x")
    assert [token.text for token in tokens[1:]] == ["int", "y", ";"]


def test_a_hash_in_the_middle_of_a_line_is_refused() -> None:
    with pytest.raises(Refused):
        tokens_of("int x; # define y")


@pytest.mark.parametrize("source", ["/* open", '"open', "'a", '"line\nbreak"', "%: define", "a <% b %>", "x ??= y"])
def test_what_cannot_be_read_with_certainty_is_refused(source: str) -> None:
    with pytest.raises(Refused):
        tokens_of(source)


def test_definitions_and_includes_are_read() -> None:
    tokens = tokens_of('#define F(a, b) a##b #a\n#  define C (1)\n#include <a/b.h> // c\n# include "d.h"\n#pragma once')
    definitions = [definition_of(token) for token in tokens]
    assert definitions[0] is not None
    assert (definitions[0].name, definitions[0].takes_arguments) == ("F", True)
    assert definitions[1] is not None
    assert (definitions[1].name, definitions[1].takes_arguments) == ("C", False)
    assert [included(token) for token in tokens] == [None, None, "a/b.h", "d.h", None]


def test_an_include_of_a_macro_is_refused() -> None:
    with pytest.raises(Refused, match="not to be read"):
        split("#include HEADER\n")


@given(st.text(alphabet="ab_ \n\t\\/*\"'#(){}[]<>=;:,.0R&%?", max_size=60))
def test_any_text_is_split_or_refused_and_keeps_its_lines(source: str) -> None:
    try:
        units = split(source)
    except Refused:
        return
    assert units.device.count("\n") == units.host.count("\n") == source.count("\n")


@given(st.lists(st.sampled_from([_KERNEL, "{", "}", "#if X\n", "#else\n", "#endif\n", "namespace n {\n", "int a;\n"])))
def test_pieces_in_any_order_are_split_or_refused(pieces: list[str]) -> None:
    try:
        units = split("".join(pieces))
    except Refused:
        return
    assert units.device.count("__global__") == units.host.count("__global__") == pieces.count(_KERNEL)


# --- Chunks ---


@pytest.mark.parametrize(
    ("source", "forms"),
    [
        ("int a; float f(int b) { return b; } struct S { int x; }; enum E { A };", "OTHER FUNCTION TYPE TYPE"),
        ("namespace a::b { inline namespace c { int x; } }", "OPEN OPEN OTHER CLOSE CLOSE"),
        ('extern "C" { void f(); } extern "C" void g() {}', "OPEN OTHER CLOSE FUNCTION"),
        ("namespace py = pybind11; using A = std::vector<int>; typedef struct { int x; } B;", "OTHER OTHER TYPE"),
        ("template <typename T, int N = (1 > 0)> __global__ void k(T* x) { }", "FUNCTION"),
        ("auto f = [](int a) { return a; }; std::vector<int> v{1, 2}; int a[2] = {1, 2};", "OTHER OTHER OTHER"),
        ("struct S f(int a) { return {a}; } struct alignas(16) T { int x; };", "FUNCTION TYPE"),
        ("bool operator==(S a, S b) { return true; } S& operator=(S a) { return a; }", "FUNCTION FUNCTION"),
        ("struct __align__(8) V { float x, y; }; class C final : public B<int> { void f() {} };", "TYPE TYPE"),
        ("auto g(int a) -> std::vector<int> { return {a}; }", "FUNCTION"),
        ("__launch_bounds__(256) __global__ void k() {}", "FUNCTION"),
    ],
)
def test_declarations_are_told_apart(source: str, forms: str) -> None:
    assert [chunk.form for chunk in chunks_of(tokens_of(source), ())] == [Form[name] for name in forms.split()]


@pytest.mark.parametrize(
    "source",
    [
        "void f() {",
        "}",
        "namespace a { int x;",
        "S::S() : a{1} { }",
        "void f( {} )}",
        "template <typename T> requires (sizeof(T) > 2) void f(T a) {}",
        "void f() {\n#if A\n}\n#else\n;}\n#endif\n",
        "#if A\nvoid f(int a)\n#else\nvoid f(float a)\n#endif\n{}",
    ],
)
def test_an_uncertain_end_is_refused(source: str) -> None:
    with pytest.raises(Refused):
        chunks_of(tokens_of(source), ())


# --- Units ---


def _units(source: str) -> Units:
    return split(source)


def test_the_device_gets_no_torch_and_the_host_no_kernel_bodies() -> None:
    units = _units(
        "#include <torch/extension.h>\n#include <cub/cub.cuh>\n"
        + _KERNEL
        + "torch::Tensor f(torch::Tensor x) { k<<<1, 1>>>(x.data_ptr<float>()); return x; }\n"
    )
    assert "torch" not in units.device
    assert "x[0] = 1.f" in units.device
    assert "cub.cuh" in units.device
    assert "x[0] = 1.f" not in units.host
    assert "k<<<1, 1>>>" in units.host
    assert units.has_device_code
    assert not units.has_templates
    assert units.includes == ("torch/extension.h", "cub/cub.cuh")


def test_a_kernel_template_is_noted() -> None:
    assert _units("template <int N> __global__ void k(float* x) {}").has_templates
    assert _units("#define K(T) template <> __global__ void k(T* x) {}\nK(int)\n").has_templates


@pytest.mark.parametrize(
    "declaration",
    [
        "constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }",
        "__host__ __device__ float f(float x) { return x + 1.f; }",
        "struct P { int a; float b; };",
        "enum class Mode { A, B };",
        "static const int kThreads = 256;",
        "template <typename T> struct Traits { using type = T; };",
        "#define HD __host__ __device__\nHD int f(int a) { return a; }",
        "struct F { __device__ float operator()(float x) const { return x; } };",
        "UNKNOWN_MACRO float f(float x) { return x; }",
        "__device__ UNKNOWN_MACRO float f(float x) { return x; }",
        "C10_HOST_DEVICE float f(float x) { return x; }",
        "__device__ auto f(float x) { return x; }",
        "__device__ constexpr float f(float x) { return x; }",
    ],
)
def test_what_both_sides_may_need_stays_in_both(declaration: str) -> None:
    units = _units(f"{declaration}\n{_KERNEL}")
    for text in declaration.split("\n"):
        assert text in units.device
        assert text in units.host


@pytest.mark.parametrize(
    "declaration",
    [
        "torch::Tensor f(torch::Tensor x) { return x; }",
        "void launch(float* x) { k<<<1, 1>>>(x); }",
        "template <typename T> void launch(T* x) { k<<<1, 1>>>(x); }",
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }',
        'TORCH_LIBRARY(name, m) { m.def("f"); }',
        "using List = std::vector<torch::Tensor>;",
        "struct Saved { at::Tensor x; };",
        "namespace py = pybind11;",
        "static at::Tensor cached;",
        "static PyObject* call(PyObject* self) { return self; }",
        "cublasHandle_t handle();",
        "using at::Tensor;",
        "#define FUNCTION(n) torch::Tensor n(torch::Tensor x) { return x; }\nFUNCTION(f)",
    ],
)
def test_what_is_only_for_the_host_is_left_out(declaration: str) -> None:
    units = _units(f"{declaration}\n{_KERNEL}")
    last = declaration.rpartition("\n")[2]
    assert last in units.host
    assert last not in units.device


def test_what_rests_on_something_left_out_is_left_out_too() -> None:
    units = _units(
        "struct Saved { at::Tensor x; };\nusing All = std::vector<Saved>;\n"
        "template <typename T> void launch(T* x) { k<<<1, 1>>>(x); }\ntemplate void launch<float>(float*);\n"
        "int pick() { return 3; }\nstatic int chosen = pick();\n" + _KERNEL
    )
    assert units.device.split(_KERNEL)[0].strip() == ""


def test_device_types_of_torch_stay() -> None:
    units = _units(
        "using Rows = torch::PackedTensorAccessor32<float, 2>;\n__global__ void k(Rows x, at::Half* y) { x[0][0] = 1; }"
    )
    assert "using Rows" in units.device
    assert headers_for(units.device) == ("ATen/core/TensorAccessor.h", "c10/util/Half.h")


def test_names_of_others_need_no_header_of_torch() -> None:
    assert headers_for("struct complex { float a; }; struct map {};") == ()


def test_standard_names_that_came_with_torch_are_still_there() -> None:
    assert headers_for("static std::unordered_map<int, int> cache; std::mutex m;") == ("mutex", "unordered_map")


def test_hidden_kernels_and_variables_get_names_that_both_compilers_agree_on() -> None:
    units = _units("static __global__ void k() {}\nstatic __constant__ float c[4];\nnamespace { __device__ int n; }\n")
    assert "static" not in units.device
    assert "static" not in units.host
    assert "inline namespace _GLOBAL__N_1 {" in units.device
    assert "namespace {" in units.host


def test_a_hidden_device_function_stays_hidden() -> None:
    source = "static __device__ float f(float x);\nstatic __device__ float f(float x) { return x; }\n"
    assert _units(source).device == source


def test_a_static_inside_a_body_stays() -> None:
    assert "static const int a" in _units("__global__ void k() { static const int a = 3; }").device


def test_directives_outlive_what_is_left_out() -> None:
    units = _units(
        "void f() {\n#define N 4\n#pragma unroll\n}\n__global__ void k() {\n#ifdef A\n#pragma unroll\n#endif\n}\n"
    )
    assert "#define N 4" in units.device
    assert "#pragma" not in units.device.split("__global__")[0]
    assert "#ifdef A" in units.host
    assert "#pragma" not in units.host.split("__global__")[1]


def test_macros_that_make_kernels_are_kept_whole() -> None:
    source = (
        "#define KERNEL(n, e) __global__ void n(float* x) { x[0] = e; }\n"
        "#define TWO(n) KERNEL(n##a, 1) KERNEL(n##b, 2)\n"
        "KERNEL(one, 1.f)\nTWO(t)\nvoid f(float* x) { one<<<1, 1>>>(x); }\n"
    )
    units = _units(source)
    assert "KERNEL(one, 1.f)\nTWO(t)\n" in units.device
    assert "KERNEL(one, 1.f)\nTWO(t)\n" in units.host
    assert "void f" not in units.device


def test_a_function_declared_for_the_device_is_kept_where_its_definition_does_not_say_so() -> None:
    units = _units("__device__ float f(float x);\nfloat f(float x) { return x; }\n")
    assert "return x" in units.device


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("void f() { g([=] __device__ (int i) {}); }", "device code inside a function"),
        ("__global__ void a() {}\n__global__ void b() { a<<<1, 1>>>(); }", "launches kernels"),
        ("__global__ void k(cudaTextureObject_t t) {}", "texture"),
        ("__managed__ int x;", "managed"),
        ("#include <cute/tensor.hpp>", "CuTe"),
        ("#if defined(__NVCC__)\n#endif", "which compiler"),
        ("#line 7\n", "#line"),
        ("int x = __COUNTER__;", "__COUNTER__"),
        ("#define __device__\n", "a macro named"),
        ("inline namespace { int x; }", "without a name"),
    ],
)
def test_what_is_not_to_be_split_is_refused(source: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        split(source)


# --- The corpus ---


def test_the_corpus_is_large_and_varied() -> None:
    assert len(_SOURCES) >= 60
    assert {source.outcome for source in _SOURCES} == {"fast", "refused", "error"}


@pytest.mark.parametrize("source", _SOURCES, ids=lambda source: source.name)
def test_every_source_of_the_corpus_is_split_or_refused_as_expected(source: BuildSource) -> None:
    text = sources_of(source.request).cuda
    if source.outcome == "refused":
        with pytest.raises(Refused, match=re.escape(source.reason)):
            plan(source.request, _TOOLCHAIN)
        return
    try:
        units = plan(source.request, _TOOLCHAIN).units
    except Refused:
        assert source.outcome == "error"
        return
    assert units.device.count("\n") == units.host.count("\n") == text.count("\n")
    assert "at::" not in units.device.replace("at::Half", "")
    assert "PYBIND11_MODULE" not in units.device
    assert "<<<" not in "".join(
        line for line in units.device.splitlines() if not line.endswith("\\") and "#" not in line
    )


# --- torch's arguments ---


def _request(**changes: Any) -> BuildRequest:
    return BuildRequest.parse({"name": "x", "cuda_sources": [_KERNEL], "functions": ["f"], **changes})


def test_sources_are_those_that_torch_would_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.utils.cpp_extension as torch_extension

    monkeypatch.setattr(torch_extension, "_jit_compile", lambda *_args, **_named: None)
    for changes in (
        {},
        {"functions": {"f": "what f does", "g": "what g does"}},
        {"functions": None},
        {"with_pytorch_error_handling": False},
        {"cuda_sources": [_KERNEL, "int y;"], "cpp_sources": ["int a;", "int b;"]},
    ):
        request = _request(**changes)
        torch_extension.load_inline(
            "x",
            cpp_sources=list(request.cpp_sources),
            cuda_sources=list(request.cuda_sources),
            functions=None if request.functions is None else dict(request.functions),
            build_directory=str(tmp_path),
            with_pytorch_error_handling=request.with_pytorch_error_handling,
        )
        sources = sources_of(request)
        assert sources.cpp == (tmp_path / "main.cpp").read_text()
        assert sources.cuda == (tmp_path / "cuda.cu").read_text()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cuda_sources": [], "files": {"a.cu": ""}}, "files"),
        ({"cuda_sources": []}, "no CUDA sources"),
        ({"with_cuda": False}, "without CUDA"),
        ({"no_implicit_headers": True}, "headers are not to be included"),
        ({"is_python_module": False}, "no Python module"),
    ],
)
def test_other_requests_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        sources_of(_request(**changes))


# --- Flags ---


def test_flags_go_to_the_side_that_they_concern() -> None:
    flags = cuda_host_flags(
        [
            *("-O3", "-DA=1", "-D B", "-I/x", "--use_fast_math", "-gencode", "arch=compute_90,code=sm_90"),
            *("-std=c++17", "-Xcompiler", "-fPIC,-O2", "-Xptxas=-v", "--maxrregcount=32"),
            *("-U__CUDA_NO_HALF_OPERATORS__", "-UC"),
        ]
    )
    assert flags.level == "-O2"
    assert flags.standard == "c++17"
    assert flags.options == ("-DA=1", "-DB", "-I", "/x", "-UC")


def test_the_same_for_cpp() -> None:
    flags = cxx_flags(["-O3", "-Wall", "-w", "-std=c++17 -std=c++20"])
    assert (flags.level, flags.standard, flags.options) == ("-O3", "c++20", ())


@pytest.mark.parametrize(
    ("flags", "standard"),
    [
        (["-O3", "-std=c++17"], "c++17"),
        (["-std=c++17", "-std=c++20"], "c++20"),
        (["-std=c++20", "--std", "c++17"], "c++17"),
        (["-std=c++20 -O3 -std c++17"], "c++17"),
    ],
)
def test_a_language_that_torch_finds_is_the_last_one(flags: list[str], standard: str) -> None:
    assert cuda_host_flags(flags).standard == standard


@pytest.mark.parametrize(
    "flags",
    [
        ["--std=c++17"],
        ["--std", "c++17"],
        ["-std", "c++17"],
        ["-O3 -std=c++17"],
        [" -std=c++17"],
        ["-D", "-std=c++17"],
        ["-std=c++20", "-Xcompiler", "-fPIC,-std=c++17"],
        ["-Xcompiler=-std=c++17"],
    ],
)
def test_a_language_that_torch_would_overrule_is_refused(flags: list[str]) -> None:
    with pytest.raises(Refused, match="language"):
        cuda_host_flags(flags)


@pytest.mark.parametrize(
    "flags",
    [
        ["-rdc=true"],
        ["-dc"],
        ["-G"],
        ["-Xcompiler", "-fopenmp"],
        ["-Xcompiler=-march=native"],
        ["--default-stream=per-thread"],
        ["-DTORCH_EXTENSION_NAME=y"],
        ["-DNDEBUG"],
        ["-include", "x.h"],
        ["-DA=$(id)"],
        ["-DA='x"],
        ["-Xptxas"],
    ],
)
def test_flags_that_are_not_known_are_refused(flags: list[str]) -> None:
    with pytest.raises(Refused):
        cuda_host_flags(flags)


def test_only_libraries_are_linked_in_addition() -> None:
    assert link_flags(["-lcublas", "-L/x"]) == ["-lcublas", "-L/x"]
    with pytest.raises(Refused):
        link_flags(["-Wl,--wrap=malloc"])


# --- Object files ---


def _elf(
    calls: Sequence[tuple[str, str]] = (), defined: Mapping[str, int] = MappingProxyType({}), *, dynamic: bool = False
) -> bytes:
    """An object file in which ``calls`` of functions refer to strings, as clang registers kernels, and which has the
    symbols ``defined``: names and types, with 16 for a kernel of device code."""
    strings = b"".join(text.encode() + b"\0" for _, text in calls)
    names = [b"", b".strtab", b".symtab", b".rodata.str1.1", b".rela.text", b".text"]
    table, places = b"", {}
    for name in [*names, *(function.encode() for function, _ in calls), *(name.encode() for name in defined)]:
        places[name] = len(table)
        table += name + b"\0"
    symbols, relocations, offset = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0), b"", 0
    for number, (function, text) in enumerate(calls):
        symbols += struct.pack("<IBBHQQ", 0, 1, 0, 3, offset, len(text))
        symbols += struct.pack("<IBBHQQ", places[function.encode()], 0x10, 0, 0, 0, 0)
        relocations += struct.pack("<QQq", 16 * number, (2 * number + 1) << 32 | 2, -4)
        relocations += struct.pack("<QQq", 16 * number + 8, (2 * number + 2) << 32 | 4, -4)
        offset += len(text) + 1
    for name_, kind in defined.items():
        symbols += struct.pack("<IBBHQQ", places[name_.encode()], 0x10 | kind & 15, kind & 16, 5, 0, 4)
    bodies = [b"", table, symbols, strings, relocations, b"\x90" * 64]
    kinds = [(0, 0, 0), (3, 0, 0), (11 if dynamic else 2, 0, 1), (1, 0x30, 0), (4, 0, 2), (1, 6, 0)]
    data, rows = b"\0" * 64, b""
    for name, body, (kind, flags, link) in zip(names, bodies, kinds, strict=True):
        rows += struct.pack("<IIQQQQIIQQ", places[name], kind, flags, 0, len(data), len(body), link, 0, 0, 0)
        data += body
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 1, 62, 1, 0, 0, len(data), 0, 64, 0, 0, 64, len(names), 1
    )
    return header + data[64:] + rows


def test_what_the_host_registers_is_read_from_its_object() -> None:
    data = _elf(
        [
            ("__cudaRegisterFunction", "_Z1kPf"),
            ("__cudaRegisterVar", "table"),
            ("printf", "hello"),
            ("__cudaRegisterFunction", "_Z1lPf"),
        ]
    )
    assert registered(ObjectFile(data)) == Registered(frozenset({"_Z1kPf", "_Z1lPf"}), frozenset({"table"}))


def test_registered_textures_are_refused() -> None:
    with pytest.raises(Refused, match="texture"):
        registered(ObjectFile(_elf([("__cudaRegisterManagedVar", "x")])))


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: b"\x7fELF\x02\x01" + data))
def test_what_is_no_object_file_is_refused(data: bytes) -> None:
    with contextlib.suppress(Refused):
        ObjectFile(data)


def test_symbols_of_a_real_object_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int shared_thing(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "a.c", "-o", "a.so"], cwd=tmp_path, check=True)
    assert "shared_thing" in {symbol.name for symbol in ObjectFile((tmp_path / "a.so").read_bytes()).exported}


def test_templates_that_the_host_uses_are_asked_for() -> None:
    text = instances(["_Z11relu_kernelPKfPfi", "_Z2tkIfLi4EEvPT_PKS0_N3c104HalfE", "_ZN12_GLOBAL__N_11kILb1EEEvPi"])
    assert "(void)(void (*)(float*, float const*, c10::Half))&tk<float, 4>;" in text
    assert "(void)(void (*)(int*))&_GLOBAL__N_1::k<true>;" in text
    assert "relu_kernel" not in text
    assert instances(["_Z11relu_kernelPKfPfi"]) == ""


# --- Toolchain and headers ---


def test_a_toolchain_survives_the_way_to_another_process() -> None:
    assert SplitToolchain.from_json(json.loads(json.dumps(_TOOLCHAIN.to_json()))) == _TOOLCHAIN


def test_every_part_of_a_toolchain_is_in_its_key() -> None:
    data = _TOOLCHAIN.to_json()
    keys = {_TOOLCHAIN.key}
    for name, value in data.items():
        other = [*value, "more"] if isinstance(value, (tuple, list)) else f"{value}x"
        keys.add(SplitToolchain.from_json({**data, name: other}).key)
    assert len(keys) == len(data) + 1


def test_a_machine_without_clang_has_no_toolchain(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="clang"):
        SplitToolchain.collect({}, {"PATH": str(tmp_path)})


def test_nothing_is_built_before_headers_are_precompiled(tmp_path: Path) -> None:
    assert not is_prepared(_TOOLCHAIN, tmp_path)
    (tmp_path / "ready").write_text("of another toolchain")
    with pytest.raises(Refused, match="precompiled"):
        build(_request(), _TOOLCHAIN, tmp_path, tmp_path)


def test_the_host_has_what_nvccs_headers_would_give_it(tmp_path: Path) -> None:
    (tmp_path / "shim.h").write_text(HOST_SHIM)
    (tmp_path / "a.cpp").write_text(
        '#define __host__\n#include <cmath>\n#include "shim.h"\n'
        'static_assert(sizeof(max(1, 2u)) == 4 && sizeof(min(1l, 2ul)) == 8 && sizeof(max(1.f, 2.0)) == 8, "");\n'
        "int a = max(min(3, 4), 2); float b = min(1.f, 2.f); long long c = max(1LL, 2LL);\n"
    )
    subprocess.run(["c++", "-std=c++17", "-c", "a.cpp", "-o", "a.o"], cwd=tmp_path, check=True)


def test_the_device_prelude_has_the_headers_that_are_asked_for() -> None:
    text = device_prelude(["c10/util/Half.h"], half=True)
    assert text.index("cuda_fp16.h") < text.index("c10/util/Half.h") < text.index("namespace torch")
    assert "cuda_fp16.h" not in device_prelude([], half=False)


# --- The recipe, with tools that write what they are told to ---

_TOOL = """\
import json, os, shutil, sys
from pathlib import Path
made = Path(sys.argv[1])
words = [Path(sys.argv[2]).name, *sys.argv[3:]]
with (made / "calls").open("a") as calls:
    calls.write(json.dumps([words, os.environ.get("NVCC_APPEND_FLAGS", "")]) + "\\n")
if "-E" in words:
    print('kerneljudge_abi "the same"')
if words[0] == "ar":
    Path(words[2]).write_text("archive")
if "-o" in words:
    target = Path(words[words.index("-o") + 1])
    template = made / target.name
    place = target.parent.name if target.is_absolute() else ""
    refusal = made / f"refuse {place} {target.name}"
    if refusal.exists():
        sys.exit(int(refusal.read_text() or 1))
    if (made / f"said of {target.name}").exists():
        print((made / f"said of {target.name}").read_text())
    if (made / f"refuse {target.name}").exists() and "full" not in " ".join(words):
        sys.exit("error: no")
    if template.exists():
        shutil.copy(template, target)
    else:
        target.write_text(target.name)
if words[0] == "nvcc":
    shutil.copy(made / "cubin", Path("keep") / "device.sm_90.cubin")
    print("ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90'")
    print("ptxas info    : Used 12 registers, used 0 barriers")
    print("device.cu(3): warning: unused")
"""


@dataclass(frozen=True)
class _Machine:
    """``made``: what the tools write, by the name of the file; ``device`` symbols are in the device code."""

    toolchain: SplitToolchain
    made: Path
    prepared: Path
    work: Path

    def calls(self, tool: str) -> list[list[str]]:
        rows = [json.loads(line) for line in (self.made / "calls").read_text().splitlines()]
        return [[*words, f"NVCC_APPEND_FLAGS={flags}"] for words, flags in rows if words[0] == tool]

    def registers(self, *calls: tuple[str, str]) -> None:
        (self.made / "host.o").write_bytes(_elf(calls))

    def device_has(self, **symbols: int) -> None:
        (self.made / "cubin").write_bytes(_elf(defined=symbols))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Machine:
    made, tools, work = tmp_path / "made", tmp_path / "tools", tmp_path / "work"
    for folder in (made, tools, work):
        folder.mkdir()
    (made / "tool.py").write_text(_TOOL)
    for name in ("clang++", "nvcc", "c++", "objcopy", "ar"):
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {made / "tool.py"} {made} {name} "$@"\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    toolchain = replace(
        _TOOLCHAIN, clang=str(tools / "clang++"), nvcc=(str(tools / "nvcc"),), cxx=(str(tools / "c++"),)
    )
    found = _Machine(toolchain, made, tmp_path / "prepared", work)
    found.registers(("__cudaRegisterFunction", "_Z1kPf"))
    found.device_has(_Z1kPf=18)
    (made / "x.so").write_bytes(_elf(defined={"PyInit_x": 2}, dynamic=True))
    prepare(toolchain, found.prepared)
    return found


def _build(machine: _Machine, *, line_information: bool = False, **changes: Any) -> SplitResult:
    return build(
        _request(**changes), machine.toolchain, machine.prepared, machine.work, line_information=line_information
    )


def test_the_parts_are_compiled_put_together_and_linked(machine: _Machine) -> None:
    built = _build(machine)
    assert built.library == machine.work / "x.so"
    assert built.kernels == ("k",)
    assert [(kernel.name, kernel.arch, kernel.registers) for kernel in built.resources] == [("k", "sm_90", 12)]
    assert built.log == "device.cu(3): warning: unused"
    assert {"split", "main", "host", "device", "link", "all"} <= set(built.seconds)
    assert machine.calls("objcopy")[0][1:4] == ["--update-section", ".nv_fatbin=device.fatbin", "host.o"]
    link = machine.calls("c++")[-1]
    assert [word for word in link if word.endswith(".a")] == [
        str(machine.prepared / "c++20" / "libhost.a"),
        str(machine.prepared / "c++20" / "libmain.a"),
    ]
    assert "-lc10" in link


def test_every_flag_reaches_the_side_that_it_concerns(machine: _Machine) -> None:
    _build(
        machine,
        extra_cuda_cflags=["-O3", "--use_fast_math", "-DBOTH=1", "-Xcompiler", "-O2"],
        extra_cflags=["-O3", "-DMAIN=1"],
        extra_ldflags=["-lcublas"],
        extra_include_paths=["/elsewhere"],
        line_information=True,
    )
    device = machine.calls("nvcc")[0]
    assert {"-O3", "--use_fast_math", "-DBOTH=1", "-I/elsewhere", "-std=c++20"} <= set(device)
    assert set(_TOOLCHAIN.architecture_flags) <= set(device)
    assert device[-1] == "NVCC_APPEND_FLAGS=-Xptxas=-v -lineinfo"
    host = next(call for call in machine.calls("clang++") if "host.cu" in call)
    assert {"-O2", "-DBOTH=1", "-I/elsewhere", "-DTORCH_EXTENSION_NAME=x"} <= set(host)
    assert "--use_fast_math" not in host
    assert "-DMAIN=1" not in host
    main = next(call for call in machine.calls("clang++") if "main.cpp" in call)
    assert {"-O3", "-DMAIN=1", "-I/elsewhere"} <= set(main)
    assert "-DBOTH=1" not in main
    assert "-lcublas" in machine.calls("c++")[-1]


def test_a_candidates_own_architectures_take_the_place_of_torchs(machine: _Machine) -> None:
    _build(machine, extra_cuda_cflags=["-arch=sm_80"])
    assert not set(_TOOLCHAIN.architecture_flags) & set(machine.calls("nvcc")[0])


def test_a_candidates_own_standard_has_headers_of_its_own(machine: _Machine) -> None:
    built_with = []
    for flags in ({"extra_cuda_cflags": ["-std=c++17"]}, {"extra_cflags": ["-std=c++17"]}):
        shutil.rmtree(machine.work)
        machine.work.mkdir()
        _build(machine, **flags)
        calls = machine.calls("clang++")
        for source in ("host.cu", "main.cpp"):
            used = [call for call in calls if source in call][-1]
            header = Path(used[used.index("-include-pch") + 1])
            assert f"-std={header.parent.name}" in used
            assert header.exists()
            built_with.append((source, header.parent.name))
    assert built_with == [("host.cu", "c++17"), ("main.cpp", "c++20"), ("host.cu", "c++20"), ("main.cpp", "c++17")]


@pytest.mark.parametrize("refused", ["host.pch", "main_full.pch", "main.o"])
def test_a_standard_has_all_of_its_headers_or_is_left_to_torch(machine: _Machine, tmp_path: Path, refused: str) -> None:
    assert prepare(machine.toolchain, machine.prepared) == ("c++20", "c++17")
    (machine.made / f"refuse c++17 {refused}").touch()
    assert prepare(machine.toolchain, tmp_path / "again") == ("c++20",)
    assert prepare(machine.toolchain, tmp_path / "again") == ("c++20",)
    for flags in ({"extra_cuda_cflags": ["-std=c++17"]}, {"extra_cflags": ["-std=c++17"]}):
        work = tmp_path / min(flags)
        work.mkdir()
        with pytest.raises(Refused, match=r"not precompiled for c\+\+17"):
            build(_request(**flags), machine.toolchain, tmp_path / "again", work)
    (machine.made / f"refuse c++20 {refused}").touch()
    with pytest.raises(Refused, match="cannot be precompiled"):
        prepare(machine.toolchain, tmp_path / "once more")


def test_a_compiler_that_is_ended_has_not_told_anything_of_a_standard(machine: _Machine, tmp_path: Path) -> None:
    (machine.made / "refuse c++17 host.pch").write_text("254")
    with pytest.raises(Refused, match="cannot be precompiled"):
        prepare(machine.toolchain, tmp_path / "again")
    assert not is_prepared(machine.toolchain, tmp_path / "again")


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ("main.cpp:3:9: warning: using enum declaration is a C++20 extension [-Wc++20-extensions]", False),
        ("x.cpp:1:1: warning: static lambdas are a C++23 extension [-Wc++23-extensions]\n1 warning generated.", False),
        (
            "a.cu:8:4: warning: passing no argument for the '...' parameter of a macro is ... [-Wc++20-extensions]",
            True,
        ),
        ("cuda.cu:8:4: warning: designated initializers are a C++20 extension [-Wc++20-designator]", True),
    ],
)
def test_what_belongs_to_a_later_standard_is_left_to_torch(machine: _Machine, said: str, taken: bool) -> None:
    (machine.made / "said of main.o").write_text(said)
    if taken:
        assert _build(machine).library is not None
    else:
        with pytest.raises(Refused, match="may not take it"):
            _build(machine)
    call = next(call for call in machine.calls("clang++") if "main.cpp" in call)
    assert "-Wc++20-extensions" in call
    # With it clang would say nothing.
    assert "-w" not in call


@pytest.mark.parametrize(
    ("version", "told"), [("17.0.6", False), ("18.1.8", True), ("19.1.7 (3~deb12u1)", True), ("", False)]
)
def test_clang_names_templates_as_torchs_compiler_does(machine: _Machine, version: str, told: bool) -> None:
    versions = ("clang version 18.1.8", "nvcc", f"Debian clang version {version}\nTarget: x86_64")
    toolchain = replace(machine.toolchain, versions=versions)
    for side in ("host", "main"):
        command = clang_command(toolchain, machine.prepared, side, "c++20")
        assert ("-fclang-abi-compat=17" in command) == told


def test_the_units_name_the_file_that_torch_would_have_written(machine: _Machine) -> None:
    _build(machine)
    for name in ("device.cu", "host.cu"):
        assert (machine.work / name).read_text().startswith(f'#line 1 "{machine.work / "cuda.cu"}"\n')
    assert (machine.work / "cuda.cu").read_text().endswith(_KERNEL)


@pytest.mark.parametrize(
    ("registered_as", "name"), [("__cudaRegisterFunction", "other"), ("__cudaRegisterVar", "table")]
)
def test_what_the_device_code_lacks_is_refused(machine: _Machine, registered_as: str, name: str) -> None:
    machine.registers(("__cudaRegisterFunction", "_Z1kPf"), (registered_as, name))
    with pytest.raises(Refused, match=f"lacks {name}"):
        _build(machine)


def test_a_device_variable_is_no_kernel(machine: _Machine) -> None:
    machine.device_has(_Z1kPf=1)
    with pytest.raises(Refused, match="lacks"):
        _build(machine)


def test_a_library_that_is_no_module_is_refused(machine: _Machine) -> None:
    (machine.made / "x.so").write_bytes(_elf(defined={"other": 2}, dynamic=True))
    with pytest.raises(Refused, match="no Python module"):
        _build(machine)


def test_what_the_lean_header_lacks_is_tried_with_all_of_torch(machine: _Machine) -> None:
    (machine.made / "refuse main.o").touch()
    _build(machine)
    used = [call[call.index("-include-pch") + 1] for call in machine.calls("clang++") if "main.cpp" in call]
    assert [Path(path).name for path in used] == ["main.pch", "main_full.pch"]
    assert not [word for word in machine.calls("c++")[-1] if word.endswith("libmain.a")]


def test_a_source_that_does_not_include_all_of_torch_does_not_get_it(machine: _Machine) -> None:
    (machine.made / "refuse host.o").touch()
    with pytest.raises(Refused) as refusal:
        _build(machine)
    assert refusal.value.log == "error: no\n"


def test_a_source_gets_the_header_that_it_needs(machine: _Machine) -> None:
    for lines, name in (
        ("", "host.pch"),
        ("#include <ATen/cuda/CUDAContext.h>", "host_streams.pch"),
        ("#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", "host_python.pch"),
        ("#include <torch/extension.h>\ntorch::nn::ReLU f();", "host_full.pch"),
    ):
        shutil.rmtree(machine.work)
        machine.work.mkdir()
        _build(machine, cuda_sources=[f"{lines}\n{_KERNEL}"])
        last = [call for call in machine.calls("clang++") if "host.cu" in call][-1]
        assert Path(last[last.index("-include-pch") + 1]).name == name


def test_headers_are_made_anew_for_another_toolchain_or_place(machine: _Machine, tmp_path: Path) -> None:
    assert is_prepared(machine.toolchain, machine.prepared)
    versions = ("GCC 14", *machine.toolchain.versions[1:])
    assert not is_prepared(replace(machine.toolchain, versions=versions), machine.prepared)
    machine.prepared.rename(tmp_path / "moved")
    assert not is_prepared(machine.toolchain, tmp_path / "moved")


def test_compilers_that_keep_their_types_apart_are_refused(machine: _Machine) -> None:
    text = (machine.made / "tool.py").read_text()
    (machine.made / "tool.py").write_text(text.replace('"the same"', "{words[0]}").replace("print('k", "print(f'k"))
    with pytest.raises(Refused, match="pybind11"):
        prepare(replace(machine.toolchain, torch="2.12"), machine.prepared)


def test_host_headers_name_device_code_as_nvcc_does(machine: _Machine) -> None:
    flags = ("-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_80,code=sm_80")
    command = clang_command(replace(machine.toolchain, architecture_flags=flags), machine.prepared, "host", "c++20")
    assert "-D__CUDA_ARCH_LIST__=800,900" in command


# --- With the real tools ---

# On the machines that have CUDA's compilers: preparing for them takes minutes.
_needs_tools = pytest.mark.skipif(
    nvcc_path() is None or _CLANG is None or shutil.which("objcopy") is None,
    reason="needs nvcc, clang and the binary utilities",
)
_REPRESENTATIVE = (
    "relu_scalar",
    "softmax_warp_shuffle",
    "constant_memory",
    "anonymous_template_kernel",
    "host_min_max",
    "const_pointers",
    "standard_17",
)


@pytest.fixture(scope="module")
def prepared(request: pytest.FixtureRequest) -> Iterator[Path]:
    """What ``kerneljudge prepare`` has made; else it is made once and kept between runs, since it takes minutes."""
    with pytest.MonkeyPatch.context() as patched:
        environment = ProcessEnvironment(None, cache_dir=Path("/cache"), scratch_dir=Path("/scratch")).environment
        if find(SPLIT_HEADERS, environment) is None:
            patched.setenv("KERNELJUDGE_PREPARED_DIR", str(request.config.cache.mkdir("prepared")))
        yield make(SPLIT_HEADERS, environment, lambda _line: None).folder


@pytest.fixture(scope="module")
def toolchain(prepared: Path) -> SplitToolchain:
    return load_toolchain(prepared)


@pytest.mark.gpu
@_needs_tools
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", _REPRESENTATIVE)
def test_a_source_is_built(name: str, toolchain: SplitToolchain, prepared: Path, tmp_path: Path) -> None:
    source = load_build_source(name)
    built = build(source.request, toolchain, prepared, tmp_path, link=toolchain.can_link)
    assert (built.library is not None) == toolchain.can_link
    assert built.kernels
    assert {kernel.name for kernel in built.resources} >= set(built.kernels)
    announced = registered(ObjectFile((tmp_path / "host.o").read_bytes()))
    assert len(announced.kernels) >= len(built.kernels)
    assert ObjectFile((tmp_path / "main.o").read_bytes()).section(".text") is not None
    # The device code is where clang was given a placeholder.
    section = ObjectFile((tmp_path / "host.o").read_bytes()).section(".nv_fatbin")
    assert section is not None
    assert section.size == (tmp_path / "device.fatbin").stat().st_size


@pytest.mark.gpu
@_needs_tools
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["wrong_kernel_arguments", "undeclared_in_kernel"])
def test_a_source_that_is_wrong_is_refused(
    name: str, toolchain: SplitToolchain, prepared: Path, tmp_path: Path
) -> None:
    with pytest.raises(Refused) as refusal:
        build(load_build_source(name).request, toolchain, prepared, tmp_path, link=False)
    assert "cuda.cu" in refusal.value.log


@pytest.mark.gpu
@_needs_tools
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["standard_17_with_later_code", "standard_17_with_later_cpp"])
def test_a_source_that_is_of_a_later_standard_is_refused(
    name: str, toolchain: SplitToolchain, prepared: Path, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match=r"torch's compilers may not take it: .* C\+\+20 extension"):
        build(load_build_source(name).request, toolchain, prepared, tmp_path, link=False)


@pytest.mark.gpu
@_needs_tools
@pytest.mark.timeout(1800)
def test_line_information_names_the_source(toolchain: SplitToolchain, prepared: Path, tmp_path: Path) -> None:
    request = load_build_source("relu_scalar").request
    build(request, toolchain, prepared, tmp_path, line_information=True, link=False)
    cubin = next((tmp_path / "keep").glob("*.cubin")).read_bytes()
    assert b"cuda.cu" in cubin
    assert ObjectFile(cubin).section(".debug_line") is not None


@pytest.mark.gpu
@_needs_tools
@pytest.mark.timeout(1800)
def test_the_builder_asks_it_first_and_torch_where_it_refuses(prepared: Path, tmp_path: Path) -> None:
    surroundings = ProcessEnvironment(None, cache_dir=tmp_path / "cache", scratch_dir=tmp_path)
    builder = Builder(
        ArtifactCache(tmp_path / "cache"),
        {"nvcc": "here"},
        {**surroundings.environment, "TORCH_CUDA_ARCH_LIST": cuda_architectures()},
        tmp_path,
        surroundings.compiler_confinement(),
        slots=1,
        prepared={"split": str(prepared)},
        # What comes after it takes minutes here.
        recipes=(next(recipe for recipe in RECIPES if recipe.name == "split"), Recipe("none", 1, "none", bool)),
    )
    built, _ = builder.build(load_build_source("constant_memory").request, 600, threading.Event())
    assert isinstance(built, Artifact), built
    assert (built.recipe, built.refusals) == ("split", {})
    assert built.kernels
    assert {kernel.name for kernel in built.resources} >= set(built.kernels)
    assert (built.path is not None) == load_toolchain(prepared).can_link
    wrong, _ = builder.build(load_build_source("wrong_kernel_arguments").request, 600, threading.Event())
    assert isinstance(wrong, BuildFailure)
    assert "does not compile" in wrong.refusals["split"]


@pytest.mark.parametrize("linker", [name for name in ("ld", "mold") if shutil.which(name)])
def test_what_no_library_has_is_told_by_the_linker(linker: str, tmp_path: Path) -> None:
    program = shutil.which(linker)
    assert program is not None
    (tmp_path / "ld").symlink_to(program)
    source = 'extern "C" void *PyList_New(long), *cublasCreate_v2(void*);\nvoid nowhere(int);\n'
    source += "void* f() { nowhere(3); return cublasCreate_v2(PyList_New(1)); }\n"
    (tmp_path / "made.cpp").write_text(source)
    command = ["g++", "-shared", "-fPIC", "made.cpp", f"-B{tmp_path}", REPORTING, "-o", "made.so"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert unresolved(done.stdout + done.stderr) == ["_Z7nowherei"]
