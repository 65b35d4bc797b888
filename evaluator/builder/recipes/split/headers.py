"""Texts of the small headers that the split recipe writes beside the precompiled ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["DEVICE_PRELUDE", "HOST_SHIM", "PRECOMPILED", "device_prelude"]


def _host_overloads() -> str:
    """Define ``::min`` and ``::max`` for the host, which nvcc's headers have and clang's have for the device alone."""
    lines: list[str] = []
    whole = (("int", "unsigned"), ("long", "unsigned long"), ("long long", "unsigned long long"))
    for name, sign in (("min", "<"), ("max", ">")):
        for signed, unsigned in whole:
            for first, second, wide in (
                (signed, signed, signed),
                (unsigned, unsigned, unsigned),
                (signed, unsigned, unsigned),
                (unsigned, signed, unsigned),
            ):
                body = f"return ({wide})a {sign} ({wide})b ? ({wide})a : ({wide})b;"
                lines.append(f"__KJ_HOST {wide} {name}({first} a, {second} b) {{ {body} }}")
        lines.append(f"__KJ_HOST float {name}(float a, float b) {{ return f{name}f(a, b); }}")
        for first, second in (("double", "double"), ("float", "double"), ("double", "float")):
            lines.append(f"__KJ_HOST double {name}({first} a, {second} b) {{ return f{name}(a, b); }}")
    return "\n".join(lines)


HOST_SHIM: Final = f"""\
#pragma once
#define __KJ_HOST static inline __host__
{_host_overloads()}
#undef __KJ_HOST
"""
_LEAN_HOST: Final = """\
#include <torch/types.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include "kerneljudge_host_shim.h"
"""
_LEAN_HOST_STREAMS: Final = _LEAN_HOST + "#include <ATen/cuda/CUDAContext.h>\n"
_PYTHON: Final = """\
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
"""
_LEAN_HOST_PYTHON: Final = _LEAN_HOST + _PYTHON
_LEAN_MAIN: Final = "#include <torch/types.h>\n" + _PYTHON
_FULL_HOST: Final = _LEAN_HOST + "#include <torch/extension.h>\n"
_FULL_MAIN: Final = "#include <torch/extension.h>\n"
PRECOMPILED: Final = {
    "host": _LEAN_HOST,
    "host_python": _LEAN_HOST_PYTHON,
    "host_streams": _LEAN_HOST_STREAMS,
    "host_full": _FULL_HOST,
    "main": _LEAN_MAIN,
    "main_full": _FULL_MAIN,
}
"""The precompiled texts: for the host's side of CUDA sources, and for C++."""

DEVICE_PRELUDE: Final = """\
#include <cuda.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <array>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
"""
"""Names from torch's headers that device code and the plain declarations beside it may use without naming torch."""


def device_prelude(headers: Iterable[str], half: bool) -> str:
    """Return the text that is included before the device unit.

    ``half``: the unit uses CUDA's half types, as torch includes them.
    """
    own = ["cuda_fp16.h", "cuda_bf16.h"] if half else []
    lines = [f"#include <{header}>\n" for header in (*own, *headers)]
    return "".join(
        [
            DEVICE_PRELUDE,
            *lines,
            "namespace c10 {}\nnamespace at { using namespace c10; }\nnamespace torch { using namespace at; }\n",
        ]
    )
