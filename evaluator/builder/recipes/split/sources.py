"""The two files that torch's ``load_inline`` would write, by its rules."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.builder.recipes.split.refused import Refused
from evaluator.builder.request import BuildRequest

__all__ = ["CPP_LINES", "CUDA_LINES", "Sources", "sources_of"]

CPP_LINES = "#include <torch/extension.h>"
CUDA_LINES = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>"


@dataclass(frozen=True)
class Sources:
    """``cpp`` is ``main.cpp`` and ``cuda`` is ``cuda.cu``, to the letter."""

    cpp: str
    cuda: str


def sources_of(request: BuildRequest) -> Sources:
    """Write both files' texts. Raises ``Refused`` for requests that are no ``load_inline`` of CUDA sources."""
    if request.files or request.headers:
        raise Refused("the sources are files")
    if not request.cuda_sources:
        raise Refused("there are no CUDA sources")
    if request.with_cuda is False:
        raise Refused("CUDA sources are to be built without CUDA")
    if request.no_implicit_headers:
        raise Refused("torch's headers are not to be included")
    if not request.is_python_module:
        raise Refused("the library is no Python module")
    binding: list[str] = []
    if request.functions is not None:
        binding.append("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {")
        for name, text in dict(request.functions).items():
            function = f"torch::wrap_pybind_function({name})" if request.with_pytorch_error_handling else name
            binding.append(f'm.def("{name}", {function}, "{text}");')
        binding.append("}")
    return Sources(
        "\n".join([CPP_LINES, *request.cpp_sources, *binding]), "\n".join([CUDA_LINES, *request.cuda_sources])
    )
