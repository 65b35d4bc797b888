"""Fresh inputs for every call: the problem's own, and variants of the same shapes and dtypes.

``torch.rand`` never makes a negative number, so that a candidate which returns its input passes ReLU on
it; variants exist to stop that. Values come from generators that are seeded from the operating system and
exist only in the judge.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final

import torch

__all__ = ["InputSource", "Variant", "fill_random"]

_PIECE: Final = 2**25
_WIDE_BITS: Final = 10
_PLANT_EVERY: Final = 64


class Variant(StrEnum):
    """Kinds of inputs. All but the first are drawn by the judge, scaled like the problem's own."""

    AS_WRITTEN = "as written"
    SIGNED = "sign-mixed"
    WIDE = "wide-ranged"
    SPECIAL = "special values"
    STRUCTURED = "structured"


class InputSource:
    """Draws inputs of one problem at one size into given tensors."""

    def __init__(self, get_inputs: Callable[[], Sequence[Any]], device: torch.device, *, variants: bool) -> None:
        self._get_inputs = get_inputs
        self._device = device
        self._variants = variants
        self._scales: list[float] | None = None

    def available(self, variant: Variant) -> bool:
        return self._variants or variant is Variant.AS_WRITTEN

    def draw(self) -> list[Any]:
        """What ``get_inputs`` returns, made on the device; tensors made elsewhere are moved."""
        torch.manual_seed(secrets.randbits(63))
        with torch.device(self._device):
            values = self._get_inputs()
        return [value.to(self._device) if isinstance(value, torch.Tensor) else value for value in values]

    def fill(self, targets: Sequence[torch.Tensor], variant: Variant, *, avoid_zero: bool) -> None:
        """Write new values into ``targets`` (the tensor inputs, in order).

        ``avoid_zero`` replaces exact zeros by the smallest normal number: where a derivative jumps at
        zero (ReLU), both one-sided derivatives are right, and no candidate should fail for its choice.
        """
        drawn = variant is Variant.AS_WRITTEN or not all(target.is_floating_point() for target in targets)
        if drawn or self._scales is None:
            tensors = [value for value in self.draw() if isinstance(value, torch.Tensor)]
            if self._scales is None:
                self._scales = [_root_mean_square(tensor) for tensor in tensors]
            for target, tensor in zip(targets, tensors, strict=True):
                target.copy_(tensor)
            del tensors
        if variant is not Variant.AS_WRITTEN:
            for target, scale in zip(targets, self._scales, strict=True):
                if target.is_floating_point():
                    _fill_variant(target, variant, scale)
        if avoid_zero:
            for target in targets:
                if target.is_floating_point():
                    tiny = torch.finfo(target.dtype).tiny
                    for piece in _pieces(target):
                        piece.masked_fill_(piece == 0, tiny)


def fill_random(target: torch.Tensor) -> None:
    """Fill with standard normal values: an upstream gradient."""
    generator = torch.Generator(target.device).manual_seed(secrets.randbits(63))
    for piece in _pieces(target):
        piece.normal_(generator=generator)


def _fill_variant(target: torch.Tensor, variant: Variant, scale: float) -> None:
    generator = torch.Generator(target.device).manual_seed(secrets.randbits(63))
    start = secrets.randbelow(2**20)
    for piece in _pieces(target):
        if variant is Variant.WIDE:
            piece.uniform_(-1.0, 1.0, generator=generator)
            exponent = piece.abs().mul_(2 * _WIDE_BITS).sub_(_WIDE_BITS)
            piece.sign_().mul_(exponent.exp2_()).mul_(scale)
        elif variant is Variant.STRUCTURED:
            lattice = torch.arange(start, start + piece.numel(), device=target.device)
            # A prime stride: neither rows nor columns of any usual size see the same value twice in a row.
            piece.copy_(lattice.mul_(31).remainder_(67).sub_(33)).mul_(scale / 16)
        else:
            piece.normal_(generator=generator).mul_(scale)
            if variant is Variant.SPECIAL:
                _plant(piece, scale, generator)
        start += piece.numel()


def _plant(piece: torch.Tensor, scale: float, generator: torch.Generator) -> None:
    """Put special values at one random place in every 64."""
    info = torch.finfo(piece.dtype)
    large = min(1e4 * scale, info.max / 1e4) if piece.dtype is not torch.float16 else 10 * scale
    values = torch.tensor(
        [0.0, -0.0, 1.0, -1.0, info.tiny, -info.tiny, large, -large, info.eps, -info.eps],
        dtype=piece.dtype,
        device=piece.device,
    )
    count = max(1, piece.numel() // _PLANT_EVERY)
    places = torch.randint(piece.numel(), (count,), generator=generator, device=piece.device)
    which = torch.randint(len(values), (count,), generator=generator, device=piece.device)
    piece[places] = values[which]


def _pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """The elements of a contiguous tensor as one-dimensional views of bounded size."""
    return tensor.view(-1).split(_PIECE) if tensor.numel() else ()  # type: ignore[no-untyped-call]


def _root_mean_square(tensor: torch.Tensor) -> float:
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return 1.0
    squares = sum(float(piece.double().square().sum()) for piece in _pieces(tensor.contiguous()))
    return float((squares / tensor.numel()) ** 0.5) or 1.0
