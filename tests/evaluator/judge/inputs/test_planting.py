"""Secret rows and values in mixed inputs."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from evaluator.judge.inputs import planting
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.judge.inputs.planting import Planter, Strength, swap_edge_rows
from evaluator.protocol.shared_memory import TensorSpec

_ROWS, _WIDTH = 256, 128
_ROW_WISE = Planter(rows=_ROWS, outputs=_ROWS * _WIDTH, tolerance=2e-4)


def _drawn(dtype: torch.dtype = torch.float32, rows: int = _ROWS, width: int = _WIDTH) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(3)).to(dtype)


def _planted(planter: Planter, dtype: torch.dtype = torch.float32, seed: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    before = _drawn(dtype)
    after = before.clone()
    planter.plant(after, 1.0, 0, seed, gradients=False)
    return before, after


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_only_a_few_places_are_planted_and_rows_that_are_told_of_are_among_them(dtype: torch.dtype) -> None:
    for seed in range(50):
        before, after = _planted(_ROW_WISE, dtype, seed)
        changed = (before != after) & ~(before.isnan() & after.isnan())
        assert 0 < int(changed.sum()) <= before.numel() / 16
        assert bool(after.isfinite().all())
        whole = {row for row in range(_ROWS) if bool(changed[row].all())}
        assert whole
        assert whole <= set(_ROW_WISE.rows_of(seed))


@pytest.fixture(params=["from stock", "in place"], autouse=True)
def _made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short runs and rows are copied from a stock, and long ones made where they are: all of this holds for both."""
    if request.param == "in place":
        monkeypatch.setattr(planting, "_STOCKED_BYTES", 0)
    draws = random.Random(11)  # noqa: S311 - no secret here, so that each run draws the same
    monkeypatch.setattr(planting, "secrets", SimpleNamespace(randbits=draws.getrandbits))
    _ROW_WISE.stocks.clear()


def test_the_same_seed_plants_the_same_and_another_one_elsewhere() -> None:
    assert torch.equal(_planted(_ROW_WISE)[1], _planted(_ROW_WISE)[1])
    assert _ROW_WISE.rows_of(5) == _ROW_WISE.rows_of(5)
    places = {row for seed in range(300) for row in _ROW_WISE.rows_of(seed)}
    assert len(places) > 0.95 * _ROWS


@pytest.mark.parametrize("rows", [None, 1, 3, _ROWS])
def test_runs_in_one_place_are_the_same_each_time_that_a_seed_is_used(rows: int | None) -> None:
    planter = Planter(rows=rows, outputs=_ROWS * _WIDTH, tolerance=2e-4)
    for seed in range(20):
        one, other = (_drawn() for _ in range(2))
        for tensor in (one, other):
            planter.plant(tensor, 1.0, 0, seed, gradients=True)
        assert torch.equal(one, other)


def test_a_stock_is_made_once_for_an_input_and_is_another_one_in_the_next_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planting, "_STOCKED_BYTES", 2**22)
    evaluations = [Planter(rows=_ROWS, outputs=_ROWS * _WIDTH, tolerance=2e-4) for _ in range(2)]
    for planter in evaluations:
        _planted(planter, seed=5)
        made = list(planter.stocks.values())
        _planted(planter, seed=6)
        assert [id(each) for each in planter.stocks.values()] == [id(each) for each in made]
        assert [tuple(each.shape) for each in made] == [(4, 64, _WIDTH), (64, _WIDTH)]
        assert all(len(torch.unique(each.view(-1, _WIDTH), dim=0)) == each.numel() // _WIDTH for each in made)
    one, other = (torch.cat([each.flatten() for each in planter.stocks.values()]) for planter in evaluations)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("strength", [Strength.MILD, Strength.LINEAR])
def test_numbers_of_a_planted_row_are_not_cut_off_at_a_bound(strength: Strength, dtype: torch.dtype) -> None:
    planter = Planter(rows=_ROWS, outputs=_ROWS * _WIDTH, tolerance=2e-4, strength=strength)
    for seed in range(20):
        after = (30.0 * _drawn(dtype)).contiguous()
        planter.plant(after, 30.0, 0, seed, gradients=False)
        rows = after[torch.tensor(planter.rows_of(seed))]
        ties = (rows.abs() == rows.abs().amax(dim=1, keepdim=True)).sum(dim=1)
        assert int(ties.max()) <= 4  # of so few bits some are equal by chance


def test_rows_are_planted_that_an_exponential_does_not_take() -> None:
    for seed in range(20):
        _, after = _planted(_ROW_WISE, seed=seed)
        sums = after.exp().sum(dim=1)
        assert bool((sums == 0.0).any())
        assert bool(sums.isinf().any())
        assert float(after.abs().amax(dim=1).min()) < 0.01  # where an epsilon is not small


@pytest.mark.parametrize("tolerance", [2e-4, 2e-2], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("power", [1, 2], ids=["magnitudes", "squares"])
def test_whatever_third_of_a_mean_is_left_out_shows_in_one_of_a_few_calls(tolerance: float, power: int) -> None:
    planter = Planter(rows=None, outputs=1, tolerance=tolerance)
    for begin in (0.0, 0.33, 0.66):
        shown = 0
        for seed in range(12):
            _, after = _planted(planter, seed=seed)
            terms = after.double().abs().pow(power).view(-1)[torch.randperm(after.numel())]
            kept = torch.ones_like(terms, dtype=torch.bool)
            kept[int(begin * len(terms)) : int((begin + 0.33) * len(terms))] = False
            shown += bool((terms[kept].mean() - terms.mean()).abs() > tolerance * terms.mean())
        assert shown >= 2


@pytest.mark.parametrize("bounded", [torch.tanh, torch.sigmoid, lambda x: x.clamp(0.0, 1.0)])
def test_a_third_of_a_mean_of_bounded_values_shows_where_all_is_still(
    bounded: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    planter = Planter(rows=None, outputs=1, tolerance=2e-2)
    shown = 0
    for seed in range(60):
        after = _drawn()
        planter.plant(after, 1.0, 0, seed, gradients=False)
        terms = bounded(after.double()).view(-1)
        mean = float(terms.mean())
        shown += abs(float(terms[: 2 * len(terms) // 3].mean()) - mean) > 0.02 * max(abs(mean), 1e-7)
        if planter.is_still(seed):
            assert int((after - after.median()).abs().gt(0.1).sum()) <= 12
    assert shown >= 8


@pytest.mark.parametrize("left_out", [slice(0, 32), slice(96, 128), slice(0, None, 2)], ids=["first", "last", "odd"])
def test_one_row_has_levels_that_a_share_of_it_is_not_like(left_out: slice) -> None:
    kept = torch.ones(_WIDTH, dtype=torch.bool)
    kept[left_out] = False
    shown = 0
    for seed in range(200):
        rows = torch.tanh(_planted(_ROW_WISE, seed=seed)[1].double())
        row = rows[_ROW_WISE._rows_by_kind(seed)[-1]]
        shown += abs(float(row[kept].mean() - row.mean())) > 0.1
    assert shown >= 12


def test_what_rows_are_summed_to_has_terms_in_secret_rows() -> None:
    planter = Planter(rows=_ROWS, outputs=_ROWS, tolerance=2e-2)
    for seed in range(20):
        before, after = _planted(planter, seed=seed)
        changed = (before != after).sum(dim=1)
        rows = [row for row in planter.rows_of(seed) if 4 <= int(changed[row]) < _WIDTH]
        assert rows
        assert max(float(after[row].abs().amax()) for row in rows) > 1.0


def test_without_strength_nothing_is_planted_and_no_row_is_told_of() -> None:
    planter = Planter(rows=_ROWS, outputs=_ROWS, tolerance=2e-4, strength=Strength.NONE)
    before, after = _planted(planter)
    assert torch.equal(before, after)
    assert planter.rows_of(5) == []


def test_no_more_is_planted_than_the_reference_takes() -> None:
    planter = Planter(rows=_ROWS, outputs=_ROWS, tolerance=2e-4)
    specs = [TensorSpec((_ROWS, _WIDTH), "float32")]
    asked: list[torch.Tensor] = []

    def takes_little(tensors: list[torch.Tensor]) -> bool:
        asked.extend(tensors)
        return float(tensors[0].abs().amax()) < 60.0

    source = InputSource(lambda: [_drawn()], torch.device("cpu"), variants=True, planter=planter)
    assert not source.plant_what_stays_finite(specs, takes_little), "less than otherwise"
    assert all(len(tensor) <= 7 for tensor in asked)  # rows stand alone, and only the planted ones are of interest
    for seed in range(10):
        (made,) = source.make(specs, Variant.MIXED, seed, avoid_zero=False)
        assert float(made.abs().amax()) < 60.0
    assert any(source.planted_rows(Variant.MIXED, seed) for seed in range(3))
    assert source.planted_rows(Variant.WIDE, 1) == []


def test_as_much_is_planted_as_before_where_the_reference_takes_all() -> None:
    planter = Planter(rows=_ROWS, outputs=_ROWS, tolerance=2e-4)
    source = InputSource(lambda: [_drawn()], torch.device("cpu"), variants=True, planter=planter)
    assert source.plant_what_stays_finite([TensorSpec((_ROWS, _WIDTH), "float32")], lambda _tensors: True)


def test_zeros_that_were_planted_are_avoided_where_a_derivative_jumps() -> None:
    source = InputSource(lambda: [_drawn()], torch.device("cpu"), variants=True, planter=_ROW_WISE)
    for seed in range(10):
        (made,) = source.make([TensorSpec((_ROWS, _WIDTH), "float32")], Variant.MIXED, seed, avoid_zero=True)
        assert bool((made != 0).all())


def test_edge_rows_are_elsewhere_in_all_tensors_alike() -> None:
    at_first = 0
    for seed in range(200):
        numbers = torch.arange(40)
        wide, flags = numbers[:, None].float().repeat(1, 3), numbers.to(torch.uint16)
        swap_edge_rows([wide, flags], 40, seed)
        assert wide[:, 0].int().tolist() == flags.tolist()
        assert sorted(flags.tolist()) == numbers.tolist()
        at_first += flags.tolist()[0] == 0
    assert at_first < 20
