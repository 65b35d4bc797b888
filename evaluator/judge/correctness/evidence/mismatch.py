"""Evidence about a wrong tensor: the locations, sizes and patterns of its errors.

``Evidence`` takes in the slices of one failing tensor, one at a time, and keeps little: counts for each index along
each dimension, sums over the wrong elements, a sample of them, and the worst. It decides nothing, and is not computed
for a tensor that is right. Patterns are guesses that fit the counts; where none fits, none is named.

Every wrong element is counted where it is. Of a large tensor, values are looked at in some pieces alone: otherwise a
wrong answer would cost many times as much as a right one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch

from evaluator.judge.correctness.evidence.error_locations import ErrorSpread, Pattern

__all__ = ["Evidence", "Pattern", "Worst"]

_PIECE: Final = {"cpu": 2**20, "cuda": 2**24}
"""The number of elements that are examined at once, which bounds the memory. A piece takes a hundred launches."""
_EXAMINED: Final = 2**26
"""The values of about so many elements are looked at, in every n-th piece of those with errors."""
_WORST: Final = 8
_SAMPLE_OF_SLICE: Final = 1024
_SAMPLE: Final = 2**15
_WORD_BYTES: Final = 8
_FEW: Final = 4
_MOST: Final = 0.95
_NAME: Final = 200
_DIGITS: Final = 9
_FAR: Final = 0.1

# The noise of products rounded to this many bits, as a share of the root mean square: about 2**-11 and 2**-8.
_TF32_NOISE: Final = (1e-4, 1.2e-3)
_BFLOAT16_NOISE: Final = (1.2e-3, 1.2e-2)
_WORST_OF_NOISE: Final = 16.0
_BIAS_OF_NOISE: Final = 0.5
_SHRUNK: Final = 2.0
"""Numbers that are cut off rather than rounded make sums of products smaller, by at most this many times the noise."""
_EXPLAINED: Final = 0.3
"""A factor or an offset is named where it leaves at most this share of the errors."""
_ROUNDED: Final = {
    "bfloat16": (2.0**-8, "bfloat16 (8 bits)"),
    "float16": (2.0**-10, "float16 (11 bits)"),
    "tf32": (2.0**-9, "TF32 (11 bits)"),
}

_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Worst:
    """An element outside its limit; ``flat`` counts elements of the whole tensor in memory order, ``excess`` is the
    error as a multiple of the limit."""

    flat: int
    actual: float
    expected: float
    error: float
    allowed: float
    excess: float


@dataclass
class _Guess:
    """The test whether wrong elements are the reference's values of other places."""

    tested: int = 0
    matched: int = 0

    @property
    def holds(self) -> bool:
        return self.tested >= _FEW and self.matched >= _MOST * self.tested


class Evidence:
    """The evidence about one tensor's wrong elements, in bounded size."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self._shape = shape
        self._dtype = dtype
        self._elements = math.prod(shape)
        self._every = max(1, math.ceil(self._elements / _EXAMINED))
        self._wrong_pieces = self._looked_at = self._examined = 0
        """The number of elements in the pieces that were looked at, and that of the wrong ones among them."""
        self._spread = ErrorSpread(shape)
        self._words: dict[int, tuple[int, int]] = {}
        self._sums: dict[str, float] = {}
        self._lowest, self._highest = math.inf, -math.inf
        self._largest_relative = self._largest_error = 0.0
        self._worst: list[Worst] = []
        self._sample: list[torch.Tensor] = []
        self._sampled = 0
        self._guesses: dict[tuple[str, int, int], _Guess] = {}

    @property
    def wrong(self) -> int:
        """The number of wrong elements."""
        return self._spread.wrong

    @property
    def worst(self) -> Worst | None:
        """The element that is furthest outside its limit."""
        return self._worst[0] if self._worst else None

    def add(self, actual: torch.Tensor, expected: torch.Tensor, limit: torch.Tensor | None, offset: int) -> None:
        """Take in a slice that begins with the tensor's element ``offset``.

        ``actual`` has the problem's dtype, ``expected`` and ``limit`` are float64. Integers must be equal and have no
        ``limit``.
        """
        got, wanted = actual.reshape(-1), expected.reshape(-1)
        allowed = torch.zeros((), dtype=torch.float64, device=got.device) if limit is None else limit.reshape(-1)
        allowed = allowed.expand(wanted.shape)
        step = _PIECE[got.device.type]
        quota = max(_FEW, _SAMPLE_OF_SLICE // (1 + got.numel() // step))
        for begin in range(0, got.numel(), step):
            piece = slice(begin, begin + step)
            raw, values, exact = got[piece], got[piece].double(), wanted[piece].double()
            error = (values - exact).abs_()
            wrong = raw != wanted[piece] if limit is None else ~(error <= allowed[piece])
            close = self._wrong_pieces % self._every == 0
            if close:
                finite = torch.isfinite(values) & torch.isfinite(exact)
                self._sum("square_error", error[finite].square())
                self._sum("square_expected", exact[torch.isfinite(exact)].square())
                self._looked_at += raw.numel()
            at = wrong.nonzero().view(-1)
            if not at.numel():
                continue
            self._wrong_pieces += 1
            self._spread.count(at + (offset + begin))
            self._sum("nan", torch.isnan(values[at]))
            self._sum("infinite", torch.isinf(values[at]))
            self._keep_worst(values[at], exact[at], error[at], allowed[piece][at], at + (offset + begin))
            if not close:
                continue
            self._examined += at.numel()
            self._measure(raw[at], values[at], exact[at], error[at], at + (offset + begin))
            chosen = at[torch.linspace(0, at.numel() - 1, min(quota, at.numel()), device=at.device).long()]
            self._take_sample(values[chosen], exact[chosen], allowed[piece][chosen])
            self._test_guesses(values[chosen], chosen + begin, wanted, allowed, offset)

    def describe(self, name: str, inputs: str) -> dict[str, Any]:
        """Return everything as plain data of bounded size that is ready for JSON."""
        return {
            "tensor": name[:_NAME],
            "shape": list(self._shape),
            "dtype": str(self._dtype).removeprefix("torch."),
            "inputs": inputs,
            "wrong": self.wrong,
            "total": self._elements,
            "nan": self._number("nan"),
            "infinite": self._number("infinite"),
            "patterns": [{"code": found.code, "sentence": found.sentence} for found in self.patterns()],
            "worst": [
                {
                    "index": _unravel(element.flat, self._shape),
                    "expected": _plain(element.expected),
                    "got": _plain(element.actual),
                    "error": _plain(element.error),
                    "allowed": _plain(element.allowed),
                }
                for element in self._worst
            ],
        }

    def patterns(self) -> tuple[Pattern, ...]:
        """Return the patterns in the values and in their locations: at most one of each kind."""
        if not self.wrong:
            return ()
        values = self._in_values()
        if values is not None and self._examined < self.wrong:
            looked_at = "every wrong element that was looked at"
            values = Pattern(values.code, values.sentence.replace("every wrong element", looked_at))
        return tuple(found for found in (values, self._spread.pattern()) if found is not None)

    def _measure(
        self,
        raw: torch.Tensor,
        got: torch.Tensor,
        expected: torch.Tensor,
        error: torch.Tensor,
        places: torch.Tensor,
    ) -> None:
        self._sum("zeros", got == 0)
        self._note_words(raw, places)
        for kind, rounded in _roundings(raw).items():
            self._sum(kind, rounded)
        finite = torch.isfinite(got) & torch.isfinite(expected)
        got, expected, error = got[finite], expected[finite], error[finite]
        if not got.numel():
            return
        self._lowest, self._highest = min(self._lowest, float(got.min())), max(self._highest, float(got.max()))
        self._largest_error = max(self._largest_error, float(error.max()))
        relative = (error / expected.abs()).nan_to_num(nan=0.0, posinf=math.inf)
        self._largest_relative = max(self._largest_relative, float(relative.max()))
        self._sum("count", torch.ones_like(got))
        self._sum("difference", got - expected)
        self._sum("square_difference", error.square())
        self._sum("product", got * expected)
        for power in (1, 2, 3):
            self._sum(f"got{power}", got.pow(power))
            self._sum(f"expected{power}", expected.pow(power))
            self._sum(f"magnitude{power}", expected.abs().pow(power))

    def _note_words(self, raw: torch.Tensor, places: torch.Tensor) -> None:
        """Note the least and the greatest bits of the elements at each place of an 8-byte word."""
        bits = raw.view(_INTEGERS[raw.element_size()])
        of_word = _WORD_BYTES // raw.element_size()
        for position in range(of_word):
            here = bits[places.remainder(of_word) == position]
            if here.numel():
                low, high = int(here.min()), int(here.max())
                known = self._words.get(position, (low, high))
                self._words[position] = (min(low, known[0]), max(high, known[1]))

    def _keep_worst(
        self,
        got: torch.Tensor,
        expected: torch.Tensor,
        error: torch.Tensor,
        allowed: torch.Tensor,
        places: torch.Tensor,
    ) -> None:
        excess = (error / allowed).nan_to_num(nan=math.inf, posinf=math.inf)
        most, at = excess.topk(min(_WORST, excess.numel()))
        columns = (places[at], got[at], expected[at], error[at], allowed[at], most)
        found = [Worst(int(row[0]), *row[1:]) for row in zip(*(column.tolist() for column in columns), strict=True)]
        self._worst = sorted([*self._worst, *found], key=lambda element: (-element.excess, element.flat))[:_WORST]

    def _take_sample(self, got: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor) -> None:
        room = _SAMPLE - self._sampled
        if room > 0:
            rows = torch.stack([got, expected, allowed])[:, :room].cpu()
            self._sample.append(rows)
            self._sampled += rows.shape[1]

    def _test_guesses(
        self, got: torch.Tensor, at: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor, offset: int
    ) -> None:
        """Count the cases in which a wrong element is right for another place, as far as that is in this slice."""
        for guess, partner in self._partners(at + offset):
            local = partner - offset
            inside = (partner >= 0) & (local >= 0) & (local < expected.numel())
            local = local[inside]
            if local.numel():
                counts = self._guesses.setdefault(guess, _Guess())
                error = (got[inside] - expected[local].double()).abs_()
                counts.tested += local.numel()
                counts.matched += int((error <= allowed[local]).sum())

    def _partners(self, places: torch.Tensor) -> Iterable[tuple[tuple[str, int, int], torch.Tensor]]:
        """Yield guesses, with the element whose value each of ``places`` has by that guess; -1 for none."""
        for dimension, extent in enumerate(self._shape):
            if extent < 2:
                continue
            stride = self._spread.strides[dimension]
            index = places.div(stride, rounding_mode="floor").remainder(extent)
            for step in (-1, 1):
                outside = (index + step < 0) | (index + step >= extent)
                yield ("shifted", dimension, step), (places + step * stride).masked_fill_(outside, -1)
            yield ("repeated", dimension, 0), (places - index * stride).masked_fill_(index == 0, -1)
        if len(self._shape) >= 2 and min(self._shape[-2:]) > 1:
            rows, columns = self._shape[-2:]
            within = places.remainder(rows * columns)
            row = within.div(rows, rounding_mode="floor")
            yield ("transposed", 0, 0), places - within + within.remainder(rows) * columns + row

    def _in_values(self) -> Pattern | None:
        """Return the first fitting pattern of errors in the values."""
        for look in (
            self._not_finite,
            self._one_value,
            self._factor_or_offset,
            self._from_elsewhere,
            self._rounded,
            self._permuted,
            self._noise,
        ):
            found = look()
            if found is not None:
                return found
        return None

    def _not_finite(self) -> Pattern | None:
        nan, infinite = self._number("nan"), self._number("infinite")
        if nan + infinite < self.wrong:
            return None
        kind = "NaN" if not infinite else "infinite" if not nan else "NaN or infinite"
        code = {"NaN": "nan", "infinite": "infinite"}.get(kind, "not_finite")
        kept = " (an output that is kept has NaN in it after its call)" if code == "nan" else ""
        return Pattern(code, f"every wrong element is {kind}{kept}")

    def _one_value(self) -> Pattern | None:
        if self._number("zeros") == self._examined:
            return Pattern("zeros", "every wrong element is zero, as if it had been left out or masked away")
        words = set(self._words.values())
        of_word = _WORD_BYTES // self._dtype.itemsize
        if self._examined >= _FEW * of_word and all(low == high for low, high in words):
            if len(words) > 1:
                return Pattern(
                    "never_written", "every wrong element has what the buffer was filled with before the call: nothing "
                    "was written there"
                )  # fmt: skip
            return Pattern("constant", f"every wrong element is {self._lowest:.6g}")
        return None

    def _factor_or_offset(self) -> Pattern | None:
        if self._examined < _FEW or self._number("count") < self._examined or not self._sums["expected2"]:
            return None
        got, expected, allowed = torch.cat(self._sample, dim=1)
        factor = self._sums["product"] / self._sums["expected2"]
        offset = self._sums["difference"] / self._examined

        def fits(guess: torch.Tensor, widened: float) -> bool:
            left = (got - guess).abs()
            explains = float(left.median()) <= _EXPLAINED * float((got - expected).abs().median())
            return explains and float((left <= widened * allowed).double().mean()) >= _MOST

        varied = bool((expected != expected[0]).any())
        if varied and abs(factor) > 1e-6 and fits(factor * expected, 2 * max(1.0, abs(factor))):
            if fits(-expected, 1.0):
                return Pattern("sign", "every wrong element has the opposite sign of what is expected")
            digits = 5 if f"{factor:.5g}" != "1" else _DIGITS
            return Pattern("factor", f"every wrong element is {factor:.{digits}g} times what is expected")
        if fits(expected + offset, 2.0):
            return Pattern("offset", f"every wrong element is off by {offset:+.5g}")
        return None

    def _from_elsewhere(self) -> Pattern | None:
        if self.wrong < _FEW:
            return None
        holding = [guess for guess, counts in self._guesses.items() if counts.holds]
        # Guesses with more cases are better; within one row, the element before and the first one are often the same.
        holding.sort(key=lambda guess: (-self._guesses[guess].tested, guess[0] != "shifted"))
        for kind, dimension, step in holding:
            if kind == "transposed":
                return Pattern("transposed", "the values are those of the transposed result")
            one, _ = self._spread.words_for(dimension)
            if kind == "repeated":
                return Pattern("repeated", f"what was computed for {one} 0 is everywhere along that dimension")
            side = "before" if step < 0 else "after"
            return Pattern("shifted", f"every wrong element has what belongs to the {one} {side} it: shifted by one")
        return None

    def _rounded(self) -> Pattern | None:
        if self._dtype is not torch.float32 or self.wrong < _FEW:
            return None
        for kind, (most, name) in _ROUNDED.items():
            if self._number(kind) == self._examined and self._largest_relative <= 2 * most:
                return Pattern("reduced_precision", f"every wrong element is rounded to {name}")
        return None

    def _permuted(self) -> Pattern | None:
        """Return a pattern where the sums of the first three powers agree, and the elements do not."""
        sums = self._sums
        if self._examined < _FEW**2 or self._number("count") < self._examined or not sums["expected2"]:
            return None
        if sums["square_difference"] < _FAR * sums["expected2"]:
            return None
        if self._dtype.is_floating_point:
            close = max(1e-6, 4 * torch.finfo(self._dtype).eps / math.sqrt(self._examined))
        else:
            close = 0.0
        for power in (1, 2, 3):
            if abs(sums[f"got{power}"] - sums[f"expected{power}"]) > close * sums[f"magnitude{power}"]:
                return None
        return Pattern("permuted", "the values are right and in the wrong places")

    def _noise(self) -> Pattern | None:
        """Return a pattern where errors are everywhere, without a direction except towards zero, and none is much
        larger than the others."""
        sums = self._sums
        if self._dtype is not torch.float32 or self._number("count") < self._examined or not sums["square_expected"]:
            return None
        share = math.sqrt(sums["square_error"] / sums["square_expected"])
        typical = math.sqrt(sums["square_error"] / self._looked_at)
        # Cutting off instead of rounding has a direction: towards zero, as one factor for all.
        factor = sums["product"] / sums["expected2"] if sums["expected2"] else 1.0
        towards_zero = 0.0 < 1.0 - factor <= _SHRUNK * share
        bias = abs(sums["difference"] + (1.0 - factor) * sums["expected1"] * towards_zero) / self._examined
        if self._largest_error > _WORST_OF_NOISE * typical or self._examined < _FEW**2:
            return None
        if bias > _BIAS_OF_NOISE * math.sqrt(sums["square_difference"] / self._examined):
            return None
        for (low, high), bits, name in (
            (_TF32_NOISE, 11, "TF32 or float16 (Triton's tl.dot uses TF32 unless input_precision is 'ieee')"),
            (_BFLOAT16_NOISE, 8, "bfloat16"),
        ):
            if low <= share < high:
                return Pattern(
                    "reduced_precision",
                    f"the errors are about 2^-{bits} of the tensor's scale ({share:.2g}), and no more in one place "
                    f"than in another, as if it were computed in {name}",
                )
        return None

    def _sum(self, name: str, values: torch.Tensor) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + float(values.sum(dtype=torch.float64))

    def _number(self, name: str) -> int:
        return int(self._sums.get(name, 0.0))


def _roundings(raw: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the float32 elements that can be written with less precision, as a mask for each precision."""
    if raw.dtype is not torch.float32:
        return {}
    return {
        "bfloat16": raw == raw.bfloat16().float(),
        "float16": raw == raw.half().float(),
        "tf32": raw.view(torch.int32).bitwise_and(0x1FFF) == 0,
    }


def _plain(value: float) -> float | str:
    """Return a number that JSON has, or its name."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)


def _unravel(flat: int, shape: tuple[int, ...]) -> list[int]:
    index = []
    for extent in reversed(shape):
        flat, position = divmod(flat, extent)
        index.append(position)
    return index[::-1]
