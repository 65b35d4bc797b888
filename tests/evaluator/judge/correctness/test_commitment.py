"""Small tensors on a CPU: what the judge keeps of a call, and how it sees that something changed afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from evaluator.judge.correctness.commitment import INPUT_BLOCKS, Commitment, _agrees, same_bits
from evaluator.judge.errors import Violation
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.judge.inputs.seeding import seed_generators
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import CallReport
from tests.evaluator.verifying import verifier_over_blocks


class Call:
    """A forward and backward call of ReLU, right in every element until a test changes something."""

    def __init__(self, problem: Problem) -> None:
        self.verifier, self.blocks = verifier_over_blocks(problem)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.blocks[name].tensors[0]

    def commit(self) -> Commitment:
        commitment = self.verifier.commitments.prepare([*INPUT_BLOCKS, "outputs", "input_gradients"])
        given, upstream = torch.randn_like(self["inputs"]), torch.randn_like(self["upstream"])
        for name, value in (("inputs", given), ("upstream", upstream)):
            self[name].copy_(value)
            self.verifier.commitments.commit(commitment, {name: [value]})
        self["outputs"].copy_(given.relu())
        self["input_gradients"].copy_(upstream * (given > 0))
        self.verifier.commitments.pick(commitment, [*INPUT_BLOCKS, "outputs", "input_gradients"])
        for name in ("outputs", "input_gradients"):
            self.verifier.commitments.commit(commitment, {name: self.blocks[name].tensors})
        return commitment

    def verify(self, commitment: Commitment) -> str:
        report = CallReport(device_ms=1.0, peak_bytes=0, present=3, forward_ms=0.5)
        return str(self.verifier.verify_gradients(commitment, report, 0, Variant.SIGNED, with_native=False).gradients)


def test_what_was_not_there_at_done_is_named_whichever_tensor_it_is_of(call: Call) -> None:
    names = ["outputs", "input_gradients"]
    delivered = {("outputs", 0): torch.arange(4.0), ("input_gradients", 0): torch.arange(4.0).to(torch.float16)}

    def late(done: dict[tuple[str, int], torch.Tensor], present: int = 3) -> str:
        report = CallReport(device_ms=1.0, peak_bytes=0, present=present, forward_ms=0.5)
        return call.verifier.commitments.late(Commitment(done=done, delivered=delivered), report, names)

    def copies() -> dict[tuple[str, int], torch.Tensor]:
        return {place: value.clone() for place, value in delivered.items()}

    assert late(copies()) == ""
    for place, name in ((("outputs", 0), "output 0"), (("input_gradients", 0), "the gradient of input 0")):
        other, missing = copies(), copies()
        other[place].view(torch.uint8)[-1] ^= 1
        del missing[place]
        assert late(other) == late(missing) == name
    assert late(missing, present=1) == "", "of a gradient that there is not, nothing is delivered"


@pytest.fixture
def call(problems: dict[str, Problem]) -> Call:
    return Call(problems["relu"])


def test_a_call_that_nobody_disturbs_is_right_and_leaves_copies(call: Call) -> None:
    commitment = call.commit()
    assert call.verify(commitment) == "match"
    assert not commitment.fingerprints
    assert {name for name, _, _ in commitment.copies} == set(call.blocks)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("outputs", "output 0 was written after"),
        ("input_gradients", "the gradient of input 0 was written after"),
    ],
)
def test_one_element_that_is_written_later_is_found(call: Call, name: str, said: str) -> None:
    commitment = call.commit()
    call[name].view(-1)[-1] += 1
    with pytest.raises(Violation, match=said):
        call.verify(commitment)


@pytest.mark.parametrize(
    ("name", "said"), [("inputs", "input 0 was changed"), ("upstream", "the gradient given to backward was changed")]
)
def test_given_tensors_are_the_judge_s_own_and_changes_to_them_are_seen_at_done(
    call: Call, name: str, said: str
) -> None:
    commitment = call.commit()
    assert commitment.has_copies(INPUT_BLOCKS)
    call[name].fill_(torch.nan)  # as they are taken back
    assert call.verify(commitment) == "match"
    commitment.picks[name, 0][7] += 1
    with pytest.raises(Violation, match=said):
        call.verify(commitment)


def test_what_was_picked_at_done_must_be_in_the_copy(call: Call) -> None:
    commitment = call.commit()
    ((place, index),) = (key for key in commitment.places if key[0] == "outputs")
    first = int(commitment.places[place, index][0])
    for tensor in (call["outputs"], commitment.copies["outputs", 0, 0]):
        tensor.view(-1)[first] += 1
    with pytest.raises(Violation, match="output 0 was written after"):
        call.verify(commitment)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.float32, torch.int64])
def test_of_a_slice_the_places_in_it_are_looked_at(dtype: torch.dtype) -> None:
    tensor = torch.arange(80).remainder(2).view(8, 10).to(dtype)
    if dtype.is_floating_point:
        tensor[4] = torch.nan
    places = torch.tensor([0, 7, 29, 30, 45, 59, 60, 79])
    commitment = Commitment(places={("outputs", 0): places}, picks={("outputs", 0): tensor.view(-1)[places]})
    cuts = [(0, 3), (3, 6), (6, 8)]
    for cut in cuts:
        assert _agrees(tensor[cut[0] : cut[1]].clone(), commitment, ("outputs", 0), cut)
    assert _agrees(tensor.clone(), commitment, ("outputs", 0), None)
    for place in range(80):
        changed = tensor.clone()
        changed.view(-1)[place] = 1 - int(changed.view(-1)[place].nan_to_num())
        agrees = [
            _agrees(changed[first:last].clone(), commitment, ("outputs", 0), (first, last)) for first, last in cuts
        ]
        seen = place in places.tolist()
        assert agrees == [not (seen and 10 * first <= place < 10 * last) for first, last in cuts]
        assert _agrees(changed, commitment, ("outputs", 0), None) is not seen


def test_content_is_the_same_or_not(call: Call) -> None:
    commitment, made = call.commit(), Commitment()
    call.verifier.commitments.commit(made, {"inputs": [call["inputs"].clone()]})
    assert commitment.has_content(made)
    other = call["inputs"].clone()
    other[0, 0] += 1
    call.verifier.commitments.commit(made, {"inputs": [other]})
    assert not commitment.has_content(made)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.float32, torch.int64])
def test_bits_are_compared_wherever_rows_begin(dtype: torch.dtype) -> None:
    tensor = torch.arange(7 * 33).remainder(2).view(7, 33).to(dtype)
    for start in range(7):
        part, copy = tensor[start:], tensor[start:].clone()
        assert same_bits(part, copy)
        copy[-1, -1] = 1 - int(copy[-1, -1])
        assert not same_bits(part, copy)
    assert same_bits(tensor[:0], tensor[:0].clone())


def test_nan_has_bits_like_any_other_number() -> None:
    tensor = torch.full((8,), torch.nan)
    assert same_bits(tensor, tensor.clone())
    other = (tensor.view(torch.int32) ^ 1).view(torch.float32)
    assert bool(other.isnan().all())
    assert not same_bits(tensor, other)


def test_a_seed_begins_the_stream_that_torch_begins() -> None:
    def drawn(seed: Callable[[int], object]) -> torch.Tensor:
        seed(2**62 + 5)
        return torch.cat([torch.rand(5), torch.randn(5), torch.randperm(5)])

    assert torch.equal(drawn(seed_generators), drawn(torch.manual_seed))
    assert not torch.equal(drawn(seed_generators), torch.cat([torch.rand(5), torch.randn(5), torch.randperm(5)]))


@pytest.mark.gpu
def test_a_seed_begins_the_stream_that_torch_begins_on_cuda() -> None:
    source = InputSource(lambda: [torch.randn(64)], torch.device("cuda"), variants=False)
    torch.zeros(1, device="cuda")
    seed_generators(11)
    ours = torch.randn(64, device="cuda")
    torch.manual_seed(11)
    assert torch.equal(ours, torch.randn(64, device="cuda"))
    assert torch.equal(source.draw(7)[0], source.draw(7)[0])
