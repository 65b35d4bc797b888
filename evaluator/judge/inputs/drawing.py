"""Fresh inputs for every call of a candidate: the problem's own, and variants of the same shapes and dtypes.

``torch.rand`` never makes a negative number, so a candidate that returns its input passes ReLU on it; variants prevent
that. Values come from generators that are seeded from the operating system and exist only in the judge.
"""

from __future__ import annotations

import math
import random
import secrets
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

import torch

from evaluator.dtypes import as_signed, is_differentiable, rows_of, tensor_on
from evaluator.errors import ProblemError
from evaluator.judge.inputs.planting import Planter, Strength, fill_wide, swap_edge_rows
from evaluator.judge.inputs.repeats import (
    FEW,
    MANY,
    PROOF_BYTES,
    PROOF_DRAWS,
    Repeats,
    are_equal,
    flip_some,
    repeats_of,
)
from evaluator.judge.inputs.seeding import SECRET_SEEDS
from evaluator.protocol.shared_memory import TensorSpec

__all__ = ["InputSource", "Variant", "make_upstream"]

_PIECE: Final = 2**25
_PLANT_EVERY: Final = 64
_ZERO_ROWS: Final = 64
"""In inputs with exact zeros, one of this many rows of the last dimension is zero, where there are as many. Together
with single zeros, they make a gradient no more than a tenth larger where it jumps to both sides of zero
(``kinks.is_whole``)."""
_STRETCHES: Final = 32
_LATTICE: Final = 67
_LATTICE_STRIDE: Final = 31
_COMPARED_DRAWS: Final = 3
_COMPARED_PLACES: Final = 256
_LOOKED_AT: Final = 4096
_BY_CHANCE: Final = 0.02
"""A larger share of equal numbers is not chance. Of 4096 numbers of ``torch.rand``, which has 2**24, one or two are
equal to another."""
_PARTED: Final = 2.0**-8
_TRIED_DRAWS: Final = 2
_UPSTREAM_EXPONENTS: Final = (-16, 8)
_COMFORTABLE_SUM: Final = 2.0**12
"""A sixteenth of the largest number of float16."""
_MIN_FLOAT16: Final = 2.0**-8
"""From smaller upstream gradients, a backward computes results that are too small for float16, and errors do not
show."""
_NEXT_TO_NOTHING: Final = 2.0**-24
"""Not zero: a candidate that looks for zeros could do less."""
_NEXT_TO_NOTHING_FLOAT16: Final = 2.0**-18
"""The smallest number of float16 is a 64th of this."""


class Variant(StrEnum):
    """Kinds of inputs. The judge draws all but the first by itself, scaled like the problem's own.

    ``MIXED``: as written in some places and sign-mixed in the others, with a few secret rows and values of every other
    kind (see ``evaluator.judge.inputs.planting``). So a shortcut for inputs of one kind fails for a whole tensor.
    ``ZEROS``: sign-mixed with many exact zeros, which stay in gradient calls as well. Where the judge draws no inputs
    of its own, they are as written.
    """

    AS_WRITTEN = "as written"
    MIXED = "mixed"
    SIGNED = "sign-mixed"
    WIDE = "wide-ranged"
    SPECIAL = "special values"
    STRUCTURED = "structured"
    ZEROS = "exact zeros"


_AS_DRAWN: Final = (Variant.AS_WRITTEN, Variant.MIXED)


class InputSource:
    """The source of inputs of one problem at one size.

    ``variants``: whether the judge's own kinds of inputs are as fair as those of ``get_inputs``. ``planter``: decides
    the places and values that are planted in mixed inputs. ``ties``: whether the judge may make numbers equal that
    differ in the problem's own inputs. Where the reference makes a choice, several answers would be right then.
    ``repeatable``: whether the same seed makes the same inputs, as far as is known.
    """

    def __init__(
        self,
        get_inputs: Callable[[], Sequence[Any]],
        device: torch.device,
        *,
        variants: bool,
        planter: Planter | None = None,
        ties: bool = True,
    ) -> None:
        self._get_inputs = get_inputs
        self._device = device
        self._variants = variants
        self._planter = planter
        self._ties = ties
        self._scales: list[float] | None = None
        self._seen: list[torch.Tensor] | None = None
        self._draws_to_compare = _COMPARED_DRAWS
        self._masks: tuple[int, ...] = ()
        self.repeatable = True

    def available(self, variant: Variant) -> bool:
        return self._variants or variant in (Variant.AS_WRITTEN, Variant.ZEROS)

    def planted_rows(self, variant: Variant, seed: int) -> list[int]:
        """Return the rows to be compared in the inputs that ``make`` makes from ``seed``, in ascending order."""
        return self._planter.rows_of(seed) if self._planter and variant is Variant.MIXED else []

    def repeats(self, examined: Sequence[int]) -> Repeats:
        """Return the repeats in draws of ``get_inputs``, among its tensors at the places ``examined``."""

        def draw() -> list[torch.Tensor]:
            values = self._draw(secrets.randbits(63))
            return [value for value in values if isinstance(value, torch.Tensor)]

        return repeats_of(draw, examined)

    def vary_masks(self, places: Collection[int]) -> None:
        """From now on, flip some elements of the masks at these places among the tensors, in all inputs except as
        written. A few are flipped in mixed inputs, which timed calls have, and many in the others."""
        self._masks = tuple(places) if self._variants else ()

    def plant_what_stays_finite(
        self, specs: Sequence[TensorSpec], is_finite: Callable[[list[torch.Tensor]], bool]
    ) -> bool:
        """Reduce planting to a strength that leaves the reference finite. Return whether it is the strength of before.

        ``is_finite`` is asked about mixed inputs of these ``specs``, or about their planted rows. In half precision a
        square or a sum soon overflows, and a call with a non-finite reference says little.
        """
        if self._planter is None or not self._variants:
            return True
        before = self._planter.strength
        for strength in sorted(Strength, reverse=True):
            self._planter = replace(self._planter, strength=strength, stocks={})
            if not strength or all(is_finite(self._make_planted(specs)) for _ in range(_TRIED_DRAWS)):
                break
        return self._planter.strength is before

    def plant_within(self, tolerance: float) -> None:
        """From now on, plant for this ``tolerance``, which is ``atol + rtol``."""
        if self._planter is not None:
            self._planter = replace(self._planter, tolerance=tolerance, stocks={})

    def _make_planted(self, specs: Sequence[TensorSpec]) -> list[torch.Tensor]:
        """Return mixed inputs of the highest loudness; where rows are independent, only the planted rows."""
        seed = secrets.randbits(63)
        while self._planter and self._planter.is_still(seed):
            seed = secrets.randbits(63)
        made, rows = self.make(specs, Variant.MIXED, seed, avoid_zero=False), self.planted_rows(Variant.MIXED, seed)
        return [rows_of(tensor, tensor_on(tensor.device, rows, torch.int64)) for tensor in made] if rows else made

    def draw(self, seed: int) -> list[Any]:
        """Return the result of ``get_inputs``, made on the device; tensors made elsewhere are moved.

        Raises ``ProblemError`` where every draw has the same values and the judge has none of its own to add: a
        candidate could return its first answer in each call.
        """
        values = self._draw(seed)
        if self._draws_to_compare:
            self._draws_to_compare -= 1
            self._refuse_repetition(values)
        return values

    def _draw(self, seed: int) -> list[Any]:
        with SECRET_SEEDS.held(seed), torch.device(self._device):
            values = self._get_inputs()
        return [value.to(self._device) if isinstance(value, torch.Tensor) else value for value in values]

    def _refuse_repetition(self, values: Sequence[Any]) -> None:
        """Compare a few places with those of the draw before, and whole draws where these are the same."""
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if not tensors or (self._variants and any(is_differentiable(tensor) for tensor in tensors)):
            return
        before, self._seen = self._seen, [_at_some_places(tensor) for tensor in tensors]
        if before is None or not are_equal(before, self._seen):
            return
        small = sum(tensor.nbytes for tensor in tensors) <= PROOF_BYTES
        for _ in range(PROOF_DRAWS if small else 1):
            other = [value for value in self._draw(secrets.randbits(63)) if isinstance(value, torch.Tensor)]
            if not are_equal(tensors, other):
                return
        raise ProblemError(
            "get_inputs returns the same values in every call, whatever the seed: a candidate could return its first "
            "answer again. Draw at least one input anew in each call"
        )

    def make(self, specs: Sequence[TensorSpec], variant: Variant, seed: int, *, avoid_zero: bool) -> list[torch.Tensor]:
        """Return values for the tensor inputs, in order: contiguous, and in memory without other references.

        ``seed`` (secret, 63 bits) decides them, with the planter's stock: they can be made once more. ``avoid_zero``
        replaces exact zeros by the smallest normal number, except for ``ZEROS``. Where a derivative jumps at zero
        (ReLU), both one-sided derivatives are right, and no candidate should fail for its choice.
        """
        zeros = variant is Variant.ZEROS
        if zeros and not self._variants:
            variant = Variant.AS_WRITTEN
        stream = random.Random(seed)  # noqa: S311 - it only spreads a secret seed
        filled_here = variant not in _AS_DRAWN and all(spec.is_differentiable for spec in specs)
        if filled_here and self._scales is not None:
            made = [torch.empty(spec.shape, dtype=spec.torch_dtype, device=self._device) for spec in specs]
        else:
            drawn = [value for value in self.draw(stream.getrandbits(63)) if isinstance(value, torch.Tensor)]
            made = [
                value.to(spec.torch_dtype).resolve_conj().resolve_neg().contiguous().detach()
                for value, spec in zip(drawn, specs, strict=True)
            ]
            del drawn  # remaining references belong to the problem, which may return the tensor once more
            made = [tensor if _is_ours(tensor) else tensor.clone() for tensor in made]
            if self._planter and self._planter.rows:
                swap_edge_rows(made, self._planter.rows, seed)
            if self._scales is None:
                self._scales = [_root_mean_square(_real_parts(tensor)) for tensor in made]
                self._ties = self._ties or any(map(_has_ties, made))
        for index in self._masks if variant is not Variant.AS_WRITTEN else ():
            share = FEW if variant is Variant.MIXED else MANY
            made[index] = flip_some(made[index], stream.getrandbits(63), share)
        for index, (tensor, scale) in enumerate(zip(map(_real_parts, made), self._scales, strict=True)):
            if is_differentiable(tensor):
                if variant is Variant.MIXED:
                    _mix(tensor, scale, stream)
                    if self._planter:
                        self._planter.plant(tensor, scale, index, seed, gradients=avoid_zero)
                elif variant is not Variant.AS_WRITTEN:
                    _fill_variant(tensor, variant, scale, stream)
                if not self._ties and variant is not Variant.AS_WRITTEN:
                    _part_ties(tensor, scale, stream)
                if avoid_zero and not zeros:
                    _avoid_zero(tensor, planted=variant in (Variant.SPECIAL, Variant.MIXED))
        return made


def _real_parts(tensor: torch.Tensor) -> torch.Tensor:
    """Return the real numbers of a complex tensor, in its memory; any other tensor unchanged."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _has_ties(tensor: torch.Tensor) -> bool:
    """Whether more of its numbers are equal than by chance."""
    numbers = _real_parts(tensor).reshape(-1)[:_LOOKED_AT]
    return is_differentiable(numbers) and len(torch.unique(numbers)) < (1 - _BY_CHANCE) * len(numbers)


def _part_ties(target: torch.Tensor, scale: float, stream: random.Random) -> None:
    """Move every number by a random share of it, and zeros by as small a share of ``scale``, so that hardly two are
    equal."""
    generator = torch.Generator(target.device).manual_seed(stream.getrandbits(63))
    for piece in _pieces(target):
        moves = torch.empty_like(piece).uniform_(-_PARTED, _PARTED, generator=generator)
        piece.copy_(torch.where(piece == 0, moves * (_PARTED * scale), piece + piece * moves))


def _is_ours(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` has the only reference to its memory, so that it can be written to."""
    # Memory of another library (NumPy) may have an owner that is no tensor.
    resizable = tensor.untyped_storage().resizable()
    return resizable and not tensor.is_inference() and _holders(tensor) == _holders(torch.empty(1))


def _holders(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the number of tensors and other objects with its memory, and the number of Python references to that
    memory."""
    storage = tensor.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata), sys.getrefcount(storage)


def _at_some_places(tensor: torch.Tensor) -> torch.Tensor:
    flat = as_signed(tensor.detach()).reshape(-1)
    return flat[:: max(1, len(flat) // _COMPARED_PLACES)].clone()


def make_upstream(
    specs: Sequence[TensorSpec], weights: Sequence[TensorSpec], seed: int, device: torch.device
) -> list[torch.Tensor]:
    """Return an upstream gradient for each output, decided by ``seed``.

    The values are standard normal. In half of the cases all have one sign, above or below zero: only these reveal an
    omission in a backward that is proportional to their mean. Except in float16, in half of the cases they are many
    times smaller or larger, as from a loss. In one of four cases those of all outputs but one are next to nothing.
    Integers get zeros, since no gradient flows back from them.

    In float16, gradients of one sign are smaller where the sums of ``weights``' gradients would overflow, down to a
    256th.
    """
    # A separate stream, because the same seed decides the inputs.
    stream = random.Random(f"upstream {seed}")  # noqa: S311 - it only spreads a secret seed
    scale = 2.0 ** stream.randint(*_UPSTREAM_EXPONENTS) if stream.random() < 0.5 else 1.0
    differentiable = [index for index, spec in enumerate(specs) if spec.is_differentiable]
    alone = stream.choice(differentiable) if len(differentiable) > 1 and stream.random() < 0.25 else None
    made = []
    for index, spec in enumerate(specs):
        target = torch.empty(spec.shape, dtype=spec.torch_dtype, device=device)
        if spec.is_differentiable:
            generator = torch.Generator(device).manual_seed(stream.getrandbits(63))
            sign = stream.choice((None, None, 1.0, -1.0))
            is_quiet = alone not in (None, index)
            if spec.torch_dtype is not torch.float16:
                factor = scale * _NEXT_TO_NOTHING if is_quiet else scale
            elif is_quiet:
                factor = _NEXT_TO_NOTHING_FLOAT16
            else:
                factor = 1.0 if sign is None else _float16_scale(spec, weights)
            for piece in _pieces(_real_parts(target)):
                piece.normal_(0.0, factor, generator=generator)
                if sign is not None:
                    piece.copysign_(sign)
        else:
            target.zero_()
        made.append(target)
    return made


def _float16_scale(output: TensorSpec, weights: Sequence[TensorSpec]) -> float:
    """Return a power of two, at most 1, that keeps the sums in weights' gradients finite.

    The gradient of a weight sums as many elements of the output as there are for each of its own. Half a million of one
    sign exceed float16. Training in float16 scales its loss for the same reason. With both signs, a sum grows only with
    the root of the count.
    """
    fewest = min((count for count in (math.prod(weight.shape) for weight in weights) if count), default=0)
    terms = math.prod(output.shape) / fewest if fewest else 0.0
    halvings = max(0, math.ceil(math.log2(terms / _COMFORTABLE_SUM))) if terms else 0
    return max(_MIN_FLOAT16, 2.0**-halvings)


def _mix(target: torch.Tensor, scale: float, stream: random.Random) -> None:
    """Make every other stretch of ``target`` sign-mixed; the stretches' bounds are random."""
    generator = torch.Generator(target.device).manual_seed(stream.getrandbits(63))
    count = target.numel()
    bounds = sorted(stream.randrange(count + 1) for _ in range(_STRETCHES))
    lengths = [end - start for start, end in pairwise([0, *bounds, count])]
    stretches = [each for each in target.view(-1).split(lengths)[stream.randrange(2) :: 2] if len(each)]  # type: ignore[no-untyped-call]
    if stretches and target.is_cuda and count <= _PIECE:
        # Two kernels, because one for each stretch would take longer to launch than to run.
        lengths = [len(each) for each in stretches]
        drawn = target.new_empty(sum(lengths)).normal_(0.0, scale, generator=generator)
        torch._foreach_copy_(stretches, list(drawn.split(lengths)))  # type: ignore[no-untyped-call]
        return
    for stretch in stretches:
        for piece in stretch.split(_PIECE):
            piece.normal_(0.0, scale, generator=generator)


def _avoid_zero(target: torch.Tensor, *, planted: bool) -> None:
    """Replace exact zeros by the smallest normal number. ``planted``: the tensor may have it already, with either
    sign."""
    tiny = torch.finfo(target.dtype).tiny
    for piece in _pieces(target):
        if planted or target.dtype is torch.float16:  # float16 has many values as small as that
            piece.masked_fill_(piece == 0, tiny)
        else:
            piece.add_(tiny)  # changes zeros alone among values of usual size, and moves half as much memory


def _fill_variant(target: torch.Tensor, variant: Variant, scale: float, stream: random.Random) -> None:
    generator = torch.Generator(target.device).manual_seed(stream.getrandbits(63))
    start = stream.randrange(2**20)
    for piece in _pieces(target):
        if variant is Variant.WIDE:
            fill_wide(piece, scale, generator)
        elif variant is Variant.STRUCTURED:
            _fill_lattice(piece, scale / 16, start)
        else:
            piece.normal_(0.0, scale, generator=generator)
            if variant is Variant.SPECIAL:
                _plant(piece, scale, generator)
            elif variant is Variant.ZEROS:
                piece[_some_places(piece, generator)] = 0.0
        start += piece.numel()
    if variant is Variant.ZEROS and target.dim() > 1 and target.numel():
        target.view(-1, target.shape[-1])[stream.randrange(_ZERO_ROWS) :: _ZERO_ROWS] = 0.0


def _fill_lattice(piece: torch.Tensor, unit: float, start: int) -> None:
    """Fill with whole multiples of ``unit``. The stride is prime, so that neither rows nor columns of any usual size
    have the same value twice in a row."""
    numbers = torch.arange(start % _LATTICE, start % _LATTICE + _LATTICE, device=piece.device)
    period = numbers.mul_(_LATTICE_STRIDE).remainder_(_LATTICE).sub_(_LATTICE // 2).to(piece.dtype).mul_(unit)
    whole = piece.numel() // _LATTICE * _LATTICE
    piece[:whole].view(-1, _LATTICE).copy_(period)
    piece[whole:].copy_(period[: piece.numel() - whole])


def _plant(piece: torch.Tensor, scale: float, generator: torch.Generator) -> None:
    """Put special values at one random place in every 64."""
    info = torch.finfo(piece.dtype)
    large = min(1e4 * scale, info.max / 1e4) if piece.dtype is not torch.float16 else 10 * scale
    special = [0.0, -0.0, 1.0, -1.0, info.tiny, -info.tiny, large, -large, info.eps, -info.eps]
    values = tensor_on(piece.device, special, piece.dtype)
    places = _some_places(piece, generator)
    which = torch.randint(len(values), places.shape, generator=generator, device=piece.device)
    piece[places] = values[which]


def _some_places(piece: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return one random place in every 64 of a one-dimensional tensor, int64 of shape [places]. No place occurs twice,
    because it would vary which of two values wins."""
    count = max(1, piece.numel() // _PLANT_EVERY)
    places = torch.randint(_PLANT_EVERY, (count,), generator=generator, device=piece.device)
    places += torch.arange(count, device=piece.device) * _PLANT_EVERY
    return places.remainder_(piece.numel())


def _pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the elements of a contiguous tensor as one-dimensional views of bounded size."""
    return tensor.view(-1).split(_PIECE) if tensor.numel() else ()  # type: ignore[no-untyped-call]


def _root_mean_square(tensor: torch.Tensor) -> float:
    if not is_differentiable(tensor) or tensor.numel() == 0:
        return 1.0
    squares = sum(float(piece.double().square().sum()) for piece in _pieces(tensor.contiguous()))
    return float((squares / tensor.numel()) ** 0.5) or 1.0
