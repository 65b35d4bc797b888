"""The variants of a baseline besides the reference as it is: compiled, or in another precision."""

from __future__ import annotations

from typing import Any, Final

import torch

__all__ = ["as_baseline"]

_COMPILE_MODES: Final = {"compile": "default", "compile-max-autotune": "max-autotune"}


def as_baseline(model: torch.nn.Module, baseline: str) -> Any:
    """``model`` as the callable that ``baseline`` (one of ``evaluator.config.BASELINES``) stands for.

    ``compile*``: ``torch.compile`` with the mode of that name. ``tf32``: matrix products and convolutions may round
    their inputs to TF32, in the whole process. ``float16`` and ``bfloat16``: the model in that precision; inputs are
    cast to it and outputs back, within the call.
    """
    if baseline in _COMPILE_MODES:
        return torch.compile(model, mode=_COMPILE_MODES[baseline])
    if baseline == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    elif baseline in ("float16", "bfloat16"):
        return _InPrecision(model, getattr(torch, baseline))
    return model


class _InPrecision(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self._outer = next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), None)
        self.model = model.to(dtype)
        self._dtype = dtype

    def forward(self, *inputs: Any) -> Any:
        outer = self._outer or next(value.dtype for value in inputs if _is_floating(value))
        outputs = self.model(*(value.to(self._dtype) if _is_floating(value) else value for value in inputs))
        several = isinstance(outputs, tuple | list)
        cast = [value.to(outer) if _is_floating(value) else value for value in (outputs if several else [outputs])]
        return cast if several else cast[0]


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
