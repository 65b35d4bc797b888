"""The one CUDA header that a CPU build of torch lacks, because its build did not generate it. Torch-free."""

from __future__ import annotations

from typing import Final

__all__ = ["GENERATED_HEADER", "GENERATED_TEXT"]

GENERATED_HEADER: Final = "c10/cuda/impl/cuda_cmake_macros.h"
GENERATED_TEXT: Final = "#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n"
