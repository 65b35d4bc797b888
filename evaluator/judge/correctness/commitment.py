"""The judge's commitment to one call, so that nothing can change unnoticed afterwards.

Secret places and rows are chosen before a call is released, and fingerprints have secret weights. Later comparisons are
of private copies that agree with them.
"""

from __future__ import annotations

import contextlib
import math
import random
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from evaluator.dtypes import as_reals, as_signed, in_double, rows_of, tensor_on
from evaluator.judge.correctness.fingerprint import Fingerprinter
from evaluator.judge.errors import Violation
from evaluator.judge.runner_memory import ElementPlaces, RunnerMemory, Unreadable
from evaluator.judge.signature import Signature
from evaluator.protocol.control_page import CallReport, Location, LocationKind
from evaluator.protocol.shared_memory import Block, TensorSpec

__all__ = ["INPUT_BLOCKS", "Commitment", "Commitments", "same_bits"]

_PICKS: Final = 1024
"""The number of elements of each tensor that are read in the shared memory: those of inputs at "done", before the
judge's clock stops; those of delivered tensors, as soon as they are there."""

_READ_AT_DONE: Final = {"cpu": 128, "cuda": 1024}
"""The number of elements of each output and gradient that are read in the runner's memory before the judge's clock
stops. An unfinished share s of the work is found with a chance of 1 - (1 - s)**1024 in each call. On a CPU the kernel
looks up the page of each, which takes about as long as a small call for 1024."""
_COPIED_BYTES: Final = {"cpu": 2**23, "cuda": 0}
"""Tensors up to this size are copied and not fingerprinted. On a CPU a fingerprint takes ten times as long as a copy.
On a GPU it takes no longer than reading, and copies would be unplanned memory."""
_BROUGHT_AT_ONCE: Final = 8
"""The places for this many tensors are 64 KiB, which the driver takes without waiting for a device."""
_WORD: Final = 8
_SPOT_CHECK_ROWS: Final = 256
"""The number of sampled rows. An omission of 1 % of all rows is found in nine calls of ten."""
_SPOT_CHECK_ELEMENTS: Final = 2**16
"""With short rows, enough are sampled for this many elements. A few special values are among them, and 1 % of them is
enough to tell ill-conditioned elements from wrong ones."""
_MIN_ROWS: Final = 32
"""With fewer sampled rows, too much of the others could be left out in each call."""
_SPOT_CHECK_FROM: Final = 0.25
"""The least share of a slice for row sampling: with less than that, comparing everything takes no longer."""

_CHANGED: Final = {
    "inputs": "input {index} was changed by the candidate: a model must not write to its inputs",
    "upstream": "the gradient given to backward was changed by the candidate: it must not be written to",
    "outputs": "output {index} was written after the candidate had said that it was done",
    "input_gradients": "the gradient of input {index} was written after the candidate had said that it was done",
    "weight_gradients": "the gradient of weight {index} was written after the candidate had said that it was done",
}


_NAMES: Final = {
    "outputs": "output {index}",
    "input_gradients": "the gradient of input {index}",
    "weight_gradients": "the gradient of weight {index}",
}
INPUT_BLOCKS: Final = ("inputs", "upstream")
"""The blocks of a call's inputs: shown from a point within the judge's clock until "done"."""


@dataclass
class Commitment:
    """The judge's commitment to one call, so that nothing can change unnoticed afterwards.

    ``fingerprints``, or ``copies`` of small tensors, are by block, tensor and slice. Of inputs, which are the judge's
    own, the tensors themselves are kept. ``picks`` are by block and tensor: the values at secret places of the flat
    tensor at "done".

    With ``rows``, the call uses row sampling (a *spot check*): it is compared in these secret rows alone. ``kept`` has
    these rows of the inputs. ``picks`` of delivered tensors are their rows at "done", by block and tensor. ``given``
    has the values at the secret places of the inputs.

    ``done_places``: secret elements of the results. ``done``: their values before the judge's clock stopped, at the
    ``locations`` in the runner's own memory. ``delivered``: their later values, in the shared memory, or where they
    were taken from. All are by block and tensor, each [count]. ``doubtful``: whether they were taken from an allocation
    that was opened in an earlier call, and may have been given back since.
    """

    fingerprints: dict[tuple[str, int, int], int] = field(default_factory=dict)
    copies: dict[tuple[str, int, int], torch.Tensor] = field(default_factory=dict)
    places: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    picks: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    rows: torch.Tensor | None = None
    kept: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    given: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    done_places: dict[tuple[str, int], ElementPlaces] = field(default_factory=dict)
    done: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    delivered: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    locations: dict[tuple[str, int], Location] = field(default_factory=dict)
    doubtful: bool = False

    def has_copies(self, names: Sequence[str]) -> bool:
        """Whether these blocks, which were committed to, are kept as copies alone."""
        return all(block not in names for block, _, _ in self.fingerprints)

    def has_content(self, other: Commitment) -> bool:
        """Whether everything in ``other`` has the same content here."""
        return all(self.fingerprints[place] == value for place, value in other.fingerprints.items()) and all(
            same_bits(self.copies[place], copy) for place, copy in other.copies.items()
        )


class Commitments:
    """The maker and checker of commitments for one side's calls over the shared ``blocks``. They are in slices of about
    ``slice_elements`` where rows are independent of each other, ``None`` where they are not."""

    def __init__(
        self,
        signature: Signature,
        blocks: dict[str, Block],
        new_generator: Callable[[], torch.Generator],
        slice_elements: int | None,
    ) -> None:
        self._signature = signature
        self._blocks = blocks
        self._fingerprints = Fingerprinter(new_generator())
        self._slices = signature.slices(slice_elements)
        self._spot_check_rows = _spot_check_rows(signature, self._slices, slice_elements)
        self._order = random.SystemRandom()
        # Random numbers on a device need a launch: for a thousand places, a processor is quicker.
        self._places = np.random.default_rng(secrets.randbits(128))
        self._secret = new_generator()
        self._device = self._secret.device

    @property
    def sliced(self) -> bool:
        """Whether tensors are so large that they are treated in slices."""
        return len(self._slices) > 1

    @property
    def slices(self) -> Sequence[tuple[int, int] | None]:
        """The rows of each slice; one ``None`` for everything."""
        return self._slices

    def may_spot_check(self, *, gradients: bool) -> bool:
        """Whether row sampling is enough for one call among many. Rows must be independent of each other, and enough of
        them available. No result may be a sum over all rows, as the gradients of weights are."""
        return self._spot_check_rows >= _MIN_ROWS and not (gradients and self._signature.weights)

    def prepare(self, names: Sequence[str], *, spot_check: bool = False, planted: Sequence[int] = ()) -> Commitment:
        """Choose the places of the blocks ``names`` that ``pick`` will read. Call it before the call is released.
        ``planted``: rows that are always sampled, in ascending order; they are a quarter of the sample at the most."""
        chosen = Commitment()
        if spot_check:
            rows = self._signature.outputs[0].shape[0]
            device = self._blocks["outputs"].memory.device
            lots = torch.rand(rows, generator=self._secret, device=device, dtype=torch.float64)
            lots[tensor_on(device, planted[: self._spot_check_rows // 4], torch.int64)] = -1.0  # sampled in any case
            chosen.rows = lots.topk(self._spot_check_rows, largest=False).indices.sort().values
            # Inputs have single places all the same: reading rows takes long enough for late work.
            names = [name for name in names if name in INPUT_BLOCKS]
        tensors = self._tensors_of(names)
        places = self._choose(tensors.values(), _PICKS)
        chosen.places |= dict(zip(tensors, self._on_device(places), strict=True))
        return chosen

    def prepare_done(self, commitment: Commitment, names: Sequence[str]) -> None:
        """Choose the elements of the blocks ``names`` that must be there at "done". Call it before the call is
        released."""
        tensors = self._tensors_of(names)
        places = self._choose(tensors.values(), _READ_AT_DONE[self._device.type])
        for (place, tensor), flat, there in zip(tensors.items(), places, self._on_device(places), strict=True):
            commitment.done_places[place] = ElementPlaces.of(flat, tuple(tensor.shape), there)

    def _tensors_of(self, names: Sequence[str]) -> dict[tuple[str, int], torch.Tensor]:
        """Return the tensors of these blocks that have any elements, by block and number."""
        blocks = ((name, index, tensor) for name in names for index, tensor in enumerate(self._blocks[name].tensors))
        return {(name, index): tensor for name, index, tensor in blocks if tensor.numel()}

    def _choose(self, tensors: Collection[torch.Tensor], count: int) -> npt.NDArray[np.int64]:
        """Return ``count`` random elements of each of ``tensors``, int64 [tensors, count]."""
        extents = np.array([tensor.numel() for tensor in tensors], np.float64)
        # Shares of an extent: NumPy takes three times as long to draw whole numbers below several bounds.
        return (self._places.random((len(tensors), count)) * extents[:, None]).astype(np.int64)

    def _on_device(self, places: npt.NDArray[np.int64]) -> Sequence[torch.Tensor]:
        """Return the rows of ``places`` on the device, transferred several at a time."""
        parts = (places[start : start + _BROUGHT_AT_ONCE] for start in range(0, len(places), _BROUGHT_AT_ONCE))
        return [row for part in parts for row in tensor_on(self._device, part, torch.int64)]

    def read_done(
        self, commitment: Commitment, names: Sequence[str], locations: Sequence[Location], memory: RunnerMemory
    ) -> None:
        """Read these elements at the runner's reported ``locations``, one for each tensor of the blocks ``names``. Call
        it before the judge's clock stops. Raises ``Unreadable`` where nothing can be read, and ``RunnerGone``."""
        for (name, index), location in zip(self._places_of(names), locations, strict=True):
            chosen = commitment.done_places.get((name, index))
            if chosen is None or location.kind is LocationKind.ABSENT:
                continue
            block = self._blocks[name]
            if location.kind is LocationKind.SHARED:
                commitment.done[name, index] = _elements_of(block.tensors[index], chosen.flat)
                continue
            commitment.locations[name, index] = location
            with _named(name, index, "read"):
                commitment.done[name, index] = memory.read(location, block.layout.tensors[index], chosen)

    def repeated(self, commitment: Commitment, memory: RunnerMemory) -> str:
        """Return the name of the tensor whose memory is mapped in several places of it; empty without one. Call it
        after ``read_done``, before anything is delivered."""
        names = list(commitment.locations)
        found = memory.first_repeated(
            [(commitment.locations[name, index], self._blocks[name].layout.tensors[index]) for name, index in names]
        )
        if found is None:
            return ""
        name, index = names[found]
        return _NAMES[name].format(index=index)

    def are_there(self, names: Sequence[str], locations: Sequence[Location], present: int) -> bool:
        """Whether every result of a call in the blocks ``names`` has a location: every output, and every existing
        gradient, except empty ones."""
        return not any(
            location.kind is LocationKind.ABSENT
            and self._is_due(name, index, present)
            and self._blocks[name].layout.tensors[index].size_bytes
            for (name, index), location in zip(self._places_of(names), locations, strict=True)
        )

    def take(self, commitment: Commitment, names: Sequence[str], memory: RunnerMemory) -> None:
        """Copy the results of a call from their locations; with row sampling, the secret rows alone. Results in the
        shared memory are in place already. Call it after ``read_done``, while the runner's processes are stopped.
        Raises as that does."""
        for name, index in self._places_of(names):
            block, location = self._blocks[name], commitment.locations.get((name, index))
            spec, target = block.layout.tensors[index], block.tensors[index]
            if location is None:  # it is there already, or is empty, or an absent gradient
                if commitment.rows is not None:
                    commitment.picks[name, index] = rows_of(target, commitment.rows)
                if (name, index) in commitment.done:
                    at = commitment.done_places[name, index]
                    commitment.delivered[name, index] = _elements_of(target, at.flat)
                continue
            with _named(name, index, "taken"):
                if commitment.rows is None:
                    memory.take(location, spec, target)
                else:
                    commitment.picks[name, index] = memory.rows(location, spec, commitment.rows)
                at = commitment.done_places[name, index]
                commitment.delivered[name, index] = memory.read(location, spec, at)

    def is_as_taken(self, commitment: Commitment, memory: RunnerMemory) -> bool:
        """Whether the taken results have the same values where the runner's memory is opened anew."""
        memory.close()
        for (name, index), location in commitment.locations.items():
            at = commitment.done_places[name, index]
            try:
                now = memory.read(location, self._blocks[name].layout.tensors[index], at)
            except Unreadable:
                return False
            if not same_bits(now, commitment.done[name, index]):
                return False
        return True

    def scrub(self, names: Sequence[str], locations: Sequence[Location], memory: RunnerMemory, kept: int) -> None:
        """Have the judge overwrite the results of a call, where its runner does not do so by itself. The outputs in
        ``kept`` (bit i, output i) stay. Call it while the runner's processes are stopped. Raises as ``read_done``
        does."""
        for (name, index), location in zip(self._places_of(names), locations, strict=True):
            spec = self._blocks[name].layout.tensors[index]
            is_kept = name == "outputs" and kept >> index & 1
            if not is_kept and spec.size_bytes and location.kind is LocationKind.PRIVATE:
                with _named(name, index, "written to"):
                    memory.scrub(location, spec)

    def pick_delivered(self, commitment: Commitment) -> None:
        """Read the same elements once more, in the shared memory, when a call has been delivered."""
        for (name, index), chosen in commitment.done_places.items():
            commitment.delivered[name, index] = _elements_of(self._blocks[name].tensors[index], chosen.flat)

    def late(self, commitment: Commitment, report: CallReport, names: Sequence[str]) -> str:
        """Return the name of a tensor of the blocks ``names`` whose delivered elements were not there at "done"; empty
        without one."""
        due = [
            (name, index)
            for name, index in commitment.delivered
            if name in names and self._is_due(name, index, report.present)
        ]
        if due and all(place in commitment.done for place in due):
            # Nearly always everything is there, and a question for each would wait for the device as often.
            found = commitment.done, commitment.delivered
            if same_bits(*(torch.cat([side[place].view(torch.uint8) for place in due]) for side in found)):
                return ""
        for name, index in due:
            done, delivered = commitment.done.get((name, index)), commitment.delivered[name, index]
            if done is None or not same_bits(done, delivered):
                return _NAMES[name].format(index=index)
        return ""

    def _is_due(self, name: str, index: int, present: int) -> bool:
        """Whether a call has to have this tensor: an absent gradient is not delivered."""
        first = {"input_gradients": 1, "weight_gradients": 1 + len(self._signature.float_inputs)}
        return name not in first or bool(present >> (first[name] + index) & 1)

    def _places_of(self, names: Sequence[str]) -> list[tuple[str, int]]:
        """Return all tensors of these blocks, by block and number."""
        return [(name, index) for name in names for index in range(len(self._blocks[name].tensors))]

    def pick(self, commitment: Commitment, names: Sequence[str]) -> None:
        """Read the chosen places of the blocks ``names``: of inputs at "done", before the judge's clock stops; of
        delivered tensors, as soon as they are there."""
        if commitment.rows is not None:
            for name in names:
                for index, tensor in enumerate(self._blocks[name].tensors if name not in INPUT_BLOCKS else ()):
                    commitment.picks[name, index] = rows_of(tensor, commitment.rows)
        for (name, index), places in commitment.places.items():
            if name in names:
                commitment.picks[name, index] = _elements_of(self._blocks[name].tensors[index], places)

    def commit(self, commitment: Commitment, blocks: Mapping[str, Sequence[torch.Tensor]]) -> None:
        """Add fingerprints or copies of the tensors that are or will be the content of these blocks.

        It goes slice by slice in random order, and waits for the device once. Inputs and upstream gradients are
        committed to before they are shown, delivered tensors when the call is done. All later uses agree with the
        commitment. Small inputs are kept as they are: no runner can write to them any more. With row sampling, rows of
        the inputs are kept instead, and the delivered rows have private copies already.
        """
        if commitment.rows is not None:
            for name in [name for name in blocks if name in INPUT_BLOCKS]:
                for index, tensor in enumerate(blocks[name]):
                    commitment.kept[name, index] = rows_of(tensor, commitment.rows)
                    if (name, index) in commitment.places:
                        commitment.given[name, index] = _elements_of(tensor, commitment.places[name, index])
            return
        places = [
            (name, index, number)
            for name, tensors in blocks.items()
            for index in range(len(tensors))
            for number in range(len(self._cuts(name, index)))
        ]
        self._order.shuffle(places)
        parts = {
            (name, index, number): self._slice(name, index, blocks[name][index], number)
            for name, index, number in places
        }
        small = {
            (name, index, number)
            for name, index, number in places
            if blocks[name][index].nbytes <= _COPIED_BYTES[self._device.type]
        }
        for name, index, number in small:
            part = parts[name, index, number]
            commitment.copies[name, index, number] = part if name in INPUT_BLOCKS else part.clone()
        large = [place for place in parts if place not in small]
        fingerprints = self._fingerprints.of_each([parts[place] for place in large])
        commitment.fingerprints |= dict(zip(large, fingerprints, strict=True))

    def _cuts(self, name: str, index: int) -> list[tuple[int, int] | None]:
        """Return the slices of a tensor: the whole of it alone, where every slice of a call has to do with all."""
        signature = self._signature
        whole = {
            "inputs": index in signature.whole_inputs,
            "input_gradients": index in signature.whole_gradients,
            "weight_gradients": True,
        }
        return [None] if whole.get(name, bool(signature.pooled)) else self._slices

    def _slice(self, name: str, index: int, tensor: torch.Tensor, number: int) -> torch.Tensor:
        cut = self._cuts(name, index)[number]
        return tensor if cut is None else tensor[cut[0] : cut[1]]

    def compared(self, commitment: Commitment) -> range:
        """Return the slices that a call is compared in."""
        return range(len(self._slices) if commitment.rows is None else 1)

    def rows_compared(self, commitment: Commitment, number: int) -> tuple[int, int] | None:
        """Return the rows of slice ``number`` among those that were committed to; ``None`` for everything."""
        return self._slices[number] if commitment.rows is None else (0, len(commitment.rows))

    def private(self, commitment: Commitment, name: str, index: int, number: int) -> torch.Tensor:
        """Return a private copy of a slice that agrees with the commitment; of delivered tensors, as in ``as_reals``.
        Raises ``Violation``."""
        if commitment.rows is not None:
            if name not in INPUT_BLOCKS:
                return as_reals(commitment.picks[name, index])
            given = commitment.given.get((name, index))
            if given is not None and not same_bits(given, commitment.picks[name, index]):
                raise Violation(_CHANGED[name].format(index=index))
            return commitment.kept[name, index]
        tensor, cuts = self._blocks[name].tensors[index], self._cuts(name, index)
        number = min(number, len(cuts) - 1)  # all slices have the whole of a tensor that is not cut
        part, place = self._slice(name, index, tensor, number), (name, index, number)
        if place in commitment.copies:
            copy = commitment.copies[place]
            # Inputs were taken back at "done", when the candidate's were checked (see ``pick``).
            unchanged = name in INPUT_BLOCKS or same_bits(copy, part)
            if name in INPUT_BLOCKS:
                # A copy all the same: a reference may write to its inputs, and they are needed again.
                copy = copy.clone()
        else:
            copy = part.clone(memory_format=torch.contiguous_format)
            unchanged = self._fingerprints.of(copy) == commitment.fingerprints[place]
        if not unchanged or not _agrees(copy, commitment, (name, index), cuts[number]):
            raise Violation(_CHANGED[name].format(index=index))
        return copy if name in INPUT_BLOCKS else as_reals(copy)

    def input_slice(self, commitment: Commitment, number: int) -> list[Any]:
        """Return the arguments of a call in one slice: private copies of tensors, and other values unchanged."""
        return self._arguments(lambda index: self.private(commitment, "inputs", index, number))

    def upstream_slice(self, commitment: Commitment, number: int) -> list[torch.Tensor]:
        """Return private copies of the upstream gradients in one slice; of a mean, the slice's share of them, in double
        precision."""
        found = [self.private(commitment, "upstream", index, number) for index in self._indexes("upstream")]
        share = self.share(number)
        return found if share == 1.0 else [in_double(gradient) * share for gradient in found]

    def share(self, number: int) -> float:
        """Return the weight of slice ``number`` in pooled outputs."""
        return self._signature.share_of(self._slices[number])

    def inputs(self, commitment: Commitment) -> list[Any]:
        """Return the arguments of a call in all rows; with row sampling, copies of the sampled rows fill the others."""
        return self._arguments(lambda index: self._all_rows(commitment, "inputs", index))

    def upstream(self, commitment: Commitment) -> list[torch.Tensor]:
        """Return the upstream gradients in all rows, as ``inputs`` does for inputs."""
        return [self._all_rows(commitment, "upstream", index) for index in self._indexes("upstream")]

    def _arguments(self, tensor: Callable[[int], torch.Tensor]) -> list[Any]:
        indexes = iter(self._indexes("inputs"))
        return [
            value.arrange(tensor(next(indexes))) if isinstance(value, TensorSpec) else value["value"]
            for value in self._signature.inputs
        ]

    def _all_rows(self, commitment: Commitment, name: str, index: int) -> torch.Tensor:
        if commitment.rows is None:
            numbers = range(len(self._cuts(name, index)))
            parts = [self.private(commitment, name, index, number) for number in numbers]
            return torch.cat([as_signed(part) for part in parts]).view(parts[0].dtype) if len(parts) > 1 else parts[0]
        sampled, count = self.private(commitment, name, index, 0), len(self._blocks[name].tensors[index])
        return rows_of(sampled, torch.arange(count, device=sampled.device) % len(sampled))

    def _indexes(self, name: str) -> range:
        return range(len(self._blocks[name].tensors))


@contextlib.contextmanager
def _named(name: str, index: int, done: str) -> Iterator[None]:
    """Name the tensor in the error when something cannot be ``done`` at its location."""
    try:
        yield
    except Unreadable as error:
        raise Unreadable(f"{_NAMES[name].format(index=index)} cannot be {done} where it is: {error}") from None


def _agrees(copy: torch.Tensor, commitment: Commitment, place: tuple[str, int], cut: tuple[int, int] | None) -> bool:
    """Whether a slice has exactly the bits that were picked at "done"."""
    if place not in commitment.picks:
        return True
    places, then, now = commitment.places[place], commitment.picks[place], as_signed(copy).view(-1)
    if cut is not None:
        # Places of other slices are compared with themselves: leaving them out would wait for the device.
        start = cut[0] * (copy.numel() // (cut[1] - cut[0]))
        within = (places >= start) & (places < start + copy.numel())
        places = (places - start).clamp_(0, copy.numel() - 1)
        then = torch.where(within, then, now[places])
    return same_bits(then, now[places])


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two contiguous tensors of one shape have the same bits, NaN included."""
    octets = [tensor.view(-1).view(torch.uint8) for tensor in (one, other)]
    if any(flat.numel() % _WORD or flat.storage_offset() % _WORD for flat in octets):
        return torch.equal(*octets)
    return torch.equal(*(flat.view(torch.int64) for flat in octets))


def _elements_of(tensor: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return elements by their numbers in the order of indices, without a copy of the others."""
    tensor = as_signed(tensor)
    if tensor.is_contiguous():
        return tensor.view(-1).index_select(0, places)
    at = torch.zeros_like(places)
    for extent, stride in reversed(list(zip(tensor.shape, tensor.stride(), strict=True))):
        at += places % extent * stride
        places = places // extent
    return tensor.as_strided((tensor.numel(),), (1,)).index_select(0, at)


def _spot_check_rows(signature: Signature, slices: Sequence[tuple[int, int] | None], slice_elements: int | None) -> int:
    """Return the number of secret rows for row sampling, at most one slice. 0 where rows depend on each other, or where
    comparing everything takes no longer."""
    rows = signature.rows
    if slice_elements is None or not rows or _elements(signature.tensors) < _SPOT_CHECK_FROM * slice_elements:
        return 0
    shortest = max(1, min(math.prod(spec.shape[1:]) for spec in signature.tensors))
    enough = max(_SPOT_CHECK_ROWS, math.ceil(_SPOT_CHECK_ELEMENTS / shortest))
    found = min(enough, rows if slices[0] is None else slices[0][1] - slices[0][0])
    return found if 2 * found <= rows else 0


def _elements(tensors: Sequence[TensorSpec]) -> int:
    """Return the number of elements of the largest of these tensors."""
    return max((spec.size_bytes // spec.torch_dtype.itemsize for spec in tensors), default=0)
