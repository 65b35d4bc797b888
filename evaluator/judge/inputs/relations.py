"""Relations of random parameters that hold in every construction of a model, and that training would end.

An orthogonal matrix differs under every seed, and its product with its transpose is the identity each time. Similarly,
the lengths of a weight norm begin as those of its directions, and two layers may begin alike. A candidate that relies
on such a relation leaves out work, and is right with any constructed weights. A relation is a number computed from the
parameters that no seed changes. Related parameters are moved like constant ones (see
``evaluator.judge.inputs.parameters``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Final

import torch

__all__ = ["related_among", "related_of"]

_SAME: Final = 5e-6
"""The largest difference of equal numbers in two models, as a share of their terms: they are rounded to float32."""
_SAME_OF_ALL: Final = 1e-6
"""The same for a sum over a whole tensor, which is nearly equal by chance in a large tensor."""
_SHARE: Final = 0.25
"""The least share of equal numbers of one kind that makes a relation."""
_VECTORS: Final = 64
"""The most rows, or other vectors, of a tensor that are examined."""

_MOST_OF_RANK: Final = 256
"""A rank below this is detected: this many vectors of a matrix depend on each other then."""
_LENGTH_OF_RANK: Final = 1024
"""The most examined elements of each vector."""
_SINGULAR: Final = 1e-11
"""The least eigenvalue of the products of dependent unit vectors, rounded to float32, is below this. For independent
vectors, as many as they have elements, this happens in one case of a thousand, and hardly ever in three models."""

_BLOCK: Final = 1024

_Tensors = Mapping[str, torch.Tensor]

_Facts = dict[tuple[tuple[str, ...], str], tuple[torch.Tensor, torch.Tensor, float]]
"""By the names of the parameters and the kind: numbers that a relation keeps the same, the magnitudes of their terms,
and the allowed difference as a share of these."""


def related_of(
    one: torch.nn.Module, other: torch.nn.Module, again: Callable[[], torch.nn.Module], constants: Collection[str]
) -> tuple[str, ...]:
    """Return the names of tensors with a constant relation in two models of one class under different seeds.

    These are trainable parameters in a relation to themselves or each other, and frozen parameters and buffers that are
    copies of these; without the ``constants``. Both models are on the device and in the precision of their
    construction. ``again`` makes a third model where a relation was found: chance would not repeat in it.
    """
    return _related(_parts(one, constants), _parts(other, constants), lambda: _parts(again(), constants))


def related_among(one: _Tensors, other: _Tensors, again: Callable[[], _Tensors]) -> tuple[str, ...]:
    """Return the names of tensors (real numbers, not empty) in the same relation in two sets of them. A third set,
    which ``again`` makes where a relation was found, has to have it as well."""
    return _related(_Parts(one), _Parts(other), lambda: _Parts(again()))


@dataclass(frozen=True)
class _Parts:
    """The ``drawn`` parameters, and the tensors ``beside`` them that may be copies of drawn ones."""

    drawn: _Tensors
    beside: _Tensors = field(default_factory=dict)


def _related(one: _Parts, other: _Parts, again: Callable[[], _Parts]) -> tuple[str, ...]:
    facts = _facts_of(one)
    found = _agreeing(facts, _facts_of(other))
    if found:
        found &= _agreeing(facts, _facts_of(again()))
    concerned = {name for names in found for name in names}
    return tuple(name for name in (*one.drawn, *one.beside) if name in concerned)


def _parts(model: torch.nn.Module, constants: Collection[str]) -> _Parts:
    """Return the trainable parameters of a model, and its other tensors; without the ``constants``."""
    drawn: dict[str, torch.Tensor] = {}
    beside: dict[str, torch.Tensor] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and tensor.numel() and name not in constants:
            (drawn if tensor.requires_grad else beside)[name] = tensor.detach()
    return _Parts(drawn, beside)


def _agreeing(some: _Facts, others: _Facts) -> set[tuple[str, ...]]:
    """Return the names of the tensors with an equal fact."""
    found = set()
    for place, (numbers, magnitudes, share) in some.items():
        if place in others:
            theirs, their_magnitudes, _ = others[place]
            same = (numbers - theirs).abs() <= share * torch.maximum(magnitudes, their_magnitudes)
            # Vectors that are zero in both, like a row for padding, tell nothing.
            same &= magnitudes > 0
            if same.numel() and int(same.sum()) >= _SHARE * same.numel():
                found.add(place[0])
    return found


def _facts_of(parts: _Parts) -> _Facts:
    drawn = parts.drawn
    facts: _Facts = {}
    for name, weight in drawn.items():
        for kind, numbers, magnitudes, share in _of_one(weight):
            facts[(name,), kind] = numbers, magnitudes, share
    families = defaultdict(list)
    for name in drawn:
        families[name.rpartition(".")[0]].append(name)
    for family in families.values():
        for short, long in permutations(family, 2):
            for kind, numbers in _of_two(drawn[short], drawn[long]):
                facts[(short, long), kind] = numbers, numbers.abs(), _SAME
    for pair in _equal(parts):
        facts[pair, "equal"] = torch.zeros(1), torch.ones(1), _SAME
    return facts


def _of_one(weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, torch.Tensor, float]]:
    """Yield facts about one parameter: kind, numbers, magnitudes and share."""
    for kind, vectors, share in (("as a whole", weight.reshape(1, -1), _SAME_OF_ALL), *_views(weight)):
        norms = _norms(vectors)
        yield f"{kind}: norms", norms, norms, share
        yield f"{kind}: sums", _sums(vectors), norms * math.sqrt(vectors.shape[1]), share
        if 1 < len(vectors) <= vectors.shape[1]:
            units = vectors.double() / norms[:, None]
            spectrum = torch.linalg.eigvalsh((units @ units.t()).nan_to_num())
            yield f"{kind}: angles", spectrum, torch.ones_like(spectrum), share
    for number, matrix in enumerate(_matrices(weight)):
        if _is_singular(matrix):
            yield f"matrix {number}: rank", torch.zeros(1), torch.ones(1), _SAME
    if weight.dim() == 2 and weight.shape[0] == weight.shape[1]:
        square = _some(_some(weight, _VECTORS).t(), _VECTORS).double()
        above = torch.ones_like(square, dtype=torch.bool).triu(1)
        upper, lower = square[above], square.t()[above]
        for kind, other in (("symmetric", lower), ("antisymmetric", -lower)):
            yield kind, upper - other, upper.abs() + lower.abs(), _SAME


def _of_two(short: torch.Tensor, long: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield facts about two parameters of one module: ratios of one's elements to the norms and sums of the other's
    vectors."""
    if short.numel() >= long.numel():
        return
    elements = _some(short.reshape(-1), _VECTORS).double()
    of_all = [("as a whole", long.reshape(1, -1), _SAME_OF_ALL)] if short.numel() == 1 else []
    of_each = _views(long) if short.numel() in long.shape else ()
    for kind, vectors, _ in (*of_all, *of_each):
        if len(vectors) == len(elements):
            yield f"{kind}: norms", elements / _norms(vectors)
            yield f"{kind}: sums", elements / _sums(vectors)


def _equal(parts: _Parts) -> Iterator[tuple[str, str]]:
    """Yield pairs in which one has the other's values or their negatives, in the same shape or transposed. One is
    drawn. The other may be beside it, in memory of its own: an untrained copy, such as a target that follows."""
    tensors = {**parts.drawn, **parts.beside}
    alike = defaultdict(list)
    for name, tensor in tensors.items():
        alike[tensor.numel(), tensor.dtype, abs(float(tensor.reshape(-1)[0]))].append(name)
    for names in alike.values():
        for one, other in combinations(names, 2):
            shared = tensors[one].data_ptr() == tensors[other].data_ptr()
            if one in parts.beside or (other in parts.beside and shared):
                continue  # an untrained tensor defines the model, and a view follows its base
            first, second = tensors[one].reshape(-1), tensors[other].reshape(-1)
            turned = tensors[other].t().reshape(-1) if tensors[other].dim() == 2 else second
            if any(torch.equal(first, each) for each in (second, -second, turned, -turned)):
                yield one, other


def _views(weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, float]]:
    """Yield some slices of a parameter at each index of a dimension, as vectors, for each dimension, and some of its
    last vectors. Each comes with the allowed difference of numbers from them, as a share."""
    if weight.dim() > 1:
        for dimension in range(weight.dim()):
            yield f"along {dimension}", _some(weight.movedim(dimension, 0), _VECTORS).flatten(1), _SAME
    if weight.dim() > 2:
        yield "along the last", _some(weight.flatten(0, -2), _VECTORS), _SAME


def _matrices(weight: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield possible products of narrower matrices. With two dimensions, this is the parameter itself. With more, it is
    each dimension against all others, and the first block of the last two."""
    if weight.dim() == 2:
        yield weight
    elif weight.dim() > 2:
        for dimension in range(weight.dim()):
            yield weight.movedim(dimension, 0).flatten(1)
        yield weight.flatten(0, -3)[0]


def _is_singular(matrix: torch.Tensor) -> bool:
    """Whether some rows of a matrix, without zero rows, depend on each other although there is room for independent
    ones."""
    length = min(matrix.shape[1], _LENGTH_OF_RANK)
    rows = _some(_some(matrix, min(length, _MOST_OF_RANK)).t(), length).t().double()
    norms = torch.linalg.vector_norm(rows, dim=1)
    rows = rows[norms > 0] / norms[norms > 0, None]
    if len(rows) < 2 or not bool(torch.isfinite(rows).all()):
        return False
    products = rows @ rows.t()
    products.diagonal().sub_(_SINGULAR)
    return int(torch.linalg.cholesky_ex(products).info) > 0


def _norms(vectors: torch.Tensor) -> torch.Tensor:
    """Return the norm of each vector, in float64."""
    blocks, rest = _in_blocks(vectors)
    squares: torch.Tensor = torch.linalg.vector_norm(blocks, dim=2).double().square().sum(1)
    return squares.add_(rest.double().square().sum(1)).sqrt_()


def _sums(vectors: torch.Tensor) -> torch.Tensor:
    """Return the sum of each vector, in float64."""
    blocks, rest = _in_blocks(vectors)
    return blocks.sum(2).double().sum(1) + rest.double().sum(1)


def _in_blocks(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return vectors in parts that are short enough to be summed in their own dtype, and the remainders at their ends.
    Sums in float64 take ten times as long."""
    count, length = vectors.shape
    whole = length // _BLOCK * _BLOCK
    return vectors[:, :whole].reshape(count, -1, _BLOCK), vectors[:, whole:]


def _some(values: torch.Tensor, most: int) -> torch.Tensor:
    """Return up to ``most`` entries along the first dimension: the same ones in each model of a class."""
    if len(values) <= most:
        return values
    return values[torch.linspace(0, len(values) - 1, most, dtype=torch.float64).long()]
