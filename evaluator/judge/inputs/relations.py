"""Relations of drawn parameters that hold however a model is constructed, and that training would end.

An orthogonal matrix is another one under every seed, and times its transpose it is the identity each time. So are the
lengths that a weight norm begins with those of its directions, and two layers may begin alike. Who counts on that
leaves out work, and is right with any weights that are as constructed. Such a relation is a number made of the
parameters that no seed changes. These parameters are moved as those are that are the same themselves (see
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
"""So far apart, as a share of what they are made of, numbers may be in two models: they are rounded to float32."""
_SAME_OF_ALL: Final = 1e-6
"""Of what a whole tensor is summed up in, which is nearly the same by chance where it is large."""
_SHARE: Final = 0.25
"""Of the numbers of one kind, so many are the same where they are in relation."""
_VECTORS: Final = 64
"""So many rows and the like of a tensor are looked at."""

_MOST_OF_RANK: Final = 256
"""A rank below that is seen: so many vectors of a matrix are then not independent of each other."""
_LENGTH_OF_RANK: Final = 1024
"""So many elements of each are looked at."""
_SINGULAR: Final = 1e-11
"""Below that is the least eigenvalue of the products of unit vectors that depend on each other and are rounded to
float32. Of as many independent ones as they have elements, it is in one case of a thousand, and hardly ever in three
models."""

_BLOCK: Final = 1024

_Tensors = Mapping[str, torch.Tensor]

_Facts = dict[tuple[tuple[str, ...], str], tuple[torch.Tensor, torch.Tensor, float]]
"""By the names of those concerned and the kind: numbers that a relation keeps the same, the magnitude of what each is
made of, and the share of that by which they may differ."""


def related_of(
    one: torch.nn.Module, other: torch.nn.Module, again: Callable[[], torch.nn.Module], constants: Collection[str]
) -> tuple[str, ...]:
    """Names of trainable parameters that are in the same relation, to themselves or each other, in two models of one
    class that were constructed under different seeds, and of frozen parameters and buffers that are copies of these;
    without the ``constants``. Both are where they were constructed, in the precision that they were constructed in.
    ``again`` makes a third one, where something is found: chance would not be the same in that."""
    return _related(_parts(one, constants), _parts(other, constants), lambda: _parts(again(), constants))


def related_among(one: _Tensors, other: _Tensors, again: Callable[[], _Tensors]) -> tuple[str, ...]:
    """Names of tensors (real numbers, not empty) that are in the same relation in two sets of them, and in a third one,
    which ``again`` makes where something is found."""
    return _related(_Parts(one), _Parts(other), lambda: _Parts(again()))


@dataclass(frozen=True)
class _Parts:
    """What is ``drawn``, and what is ``beside`` it that may be a copy of something drawn."""

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
    """The trainable parameters of a model, and its other tensors; without the ``constants``."""
    drawn: dict[str, torch.Tensor] = {}
    beside: dict[str, torch.Tensor] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and tensor.numel() and name not in constants:
            (drawn if tensor.requires_grad else beside)[name] = tensor.detach()
    return _Parts(drawn, beside)


def _agreeing(some: _Facts, others: _Facts) -> set[tuple[str, ...]]:
    """The names of those that a fact is the same about."""
    found = set()
    for place, (numbers, magnitudes, share) in some.items():
        if place in others:
            theirs, their_magnitudes, _ = others[place]
            same = (numbers - theirs).abs() <= share * torch.maximum(magnitudes, their_magnitudes)
            # Of what is zero in both, like a row for padding, nothing is known.
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
    """Facts about one parameter: kind, numbers, magnitudes and share."""
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
    """Facts about two parameters of one module: what the elements of the one are to the norms and sums of the other's
    rows and the like."""
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
    """Those of which one has the other's values, or their negatives, in its own shape or transposed; one of both is
    drawn, the other may be beside it, in memory of its own: a copy that is not trained, like a target that follows."""
    tensors = {**parts.drawn, **parts.beside}
    alike = defaultdict(list)
    for name, tensor in tensors.items():
        alike[tensor.numel(), tensor.dtype, abs(float(tensor.reshape(-1)[0]))].append(name)
    for names in alike.values():
        for one, other in combinations(names, 2):
            shared = tensors[one].data_ptr() == tensors[other].data_ptr()
            if one in parts.beside or (other in parts.beside and shared):
                continue  # what is not trained is what the model is, and a view follows
            first, second = tensors[one].reshape(-1), tensors[other].reshape(-1)
            turned = tensors[other].t().reshape(-1) if tensors[other].dim() == 2 else second
            if any(torch.equal(first, each) for each in (second, -second, turned, -turned)):
                yield one, other


def _views(weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, float]]:
    """Some of what a parameter has at each index of a dimension, as vectors, for each dimension; and some of its last
    vectors. With the share by which numbers made of these may differ."""
    if weight.dim() > 1:
        for dimension in range(weight.dim()):
            yield f"along {dimension}", _some(weight.movedim(dimension, 0), _VECTORS).flatten(1), _SAME
    if weight.dim() > 2:
        yield "along the last", _some(weight.flatten(0, -2), _VECTORS), _SAME


def _matrices(weight: torch.Tensor) -> Iterator[torch.Tensor]:
    """What may be a product of narrower matrices: a parameter of two dimensions itself; of one of more, what it is with
    each dimension against all others, and its first block of the last two."""
    if weight.dim() == 2:
        yield weight
    elif weight.dim() > 2:
        for dimension in range(weight.dim()):
            yield weight.movedim(dimension, 0).flatten(1)
        yield weight.flatten(0, -3)[0]


def _is_singular(matrix: torch.Tensor) -> bool:
    """Whether some rows of a matrix, those that are not zero, depend on each other although they have room."""
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
    """Of each, in float64."""
    blocks, rest = _in_blocks(vectors)
    squares: torch.Tensor = torch.linalg.vector_norm(blocks, dim=2).double().square().sum(1)
    return squares.add_(rest.double().square().sum(1)).sqrt_()


def _sums(vectors: torch.Tensor) -> torch.Tensor:
    """Of each, in float64."""
    blocks, rest = _in_blocks(vectors)
    return blocks.sum(2).double().sum(1) + rest.double().sum(1)


def _in_blocks(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors in parts that are short enough to be summed up in their own dtype, and what is left at their ends: in
    float64 it takes ten times as long."""
    count, length = vectors.shape
    whole = length // _BLOCK * _BLOCK
    return vectors[:, :whole].reshape(count, -1, _BLOCK), vectors[:, whole:]


def _some(values: torch.Tensor, most: int) -> torch.Tensor:
    """So many along the first dimension, or all: the same ones in each model of a class."""
    if len(values) <= most:
        return values
    return values[torch.linspace(0, len(values) - 1, most, dtype=torch.float64).long()]
