"""Parameters that are the same under every seed: which they are, other values for them, and who takes those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from evaluator.judge.inputs.parameters import (
    Values,
    ambiguous_weights,
    constants_of,
    drawn,
    drawn_tie_preserving,
    mixed,
    stepped,
    varied,
)
from evaluator.protocol.control_page import Doorbell, WeightReport
from evaluator.runner.calls import _forget_gradients, _memory_of, _state_of
from evaluator.runner.weights import State, WeightMatch, load_weights, match_weights, take_weights

_SEEDS = (1, 2)


class _Everything(nn.Module):
    """A bit of all: drawn and constant parameters, frozen ones, statistics, and constant buffers of other kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.bn = nn.BatchNorm1d(4)
        self.partly = nn.Parameter(torch.cat([torch.randn(4), torch.ones(4)]))
        self.padded = nn.Parameter(torch.cat([torch.randn(31), torch.zeros(1)]))
        self.filter = nn.Parameter(torch.ones(3), requires_grad=False)
        self.bound = nn.Parameter(torch.full((2,), -torch.inf))
        self.register_buffer("mask", torch.ones(4, 4).tril())
        self.register_buffer("drawn", torch.randn(4))


def _made(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return _Everything()


def _state(model: nn.Module) -> State:
    parameters = dict(model.named_parameters())
    buffers = {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    named = {**parameters, **buffers}
    return State([*named], [tensor.detach().clone() for tensor in named.values()], len(parameters))


def test_constant_is_what_no_seed_changes_and_training_would() -> None:
    one, other = (_made(seed) for seed in _SEEDS)
    assert constants_of(one, other) == (
        "partly",
        "norm.weight",
        "norm.bias",
        "bn.weight",
        "bn.bias",
        "bn.running_mean",
        "bn.running_var",
    )


def test_of_a_constructor_that_seeds_itself_everything_is_constant() -> None:
    assert set(constants_of(_made(1), _made(1))) >= {"linear.weight", "linear.bias", "padded"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_a_step_moves_each_element_a_little_and_changes_no_sign(dtype: torch.dtype) -> None:
    value = torch.randn(200, 30).to(dtype)
    value[0] = 0
    found = stepped({"w": value, "none": torch.ones(0, 3)}, torch.Generator().manual_seed(1))
    assert found["w"].dtype is dtype
    assert (found["w"][0] == 0).all()
    shares = (found["w"][1:] / value[1:] - 1).abs().double()
    assert 0.02 < float(shares.min()) <= float(shares.max()) < 0.13
    assert found["none"].shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_values_are_told_from_the_first_ones_and_stay_of_their_size(dtype: torch.dtype) -> None:
    values = {
        "norm.weight": torch.ones(512, dtype=dtype),
        "norm.bias": torch.zeros(512, dtype=dtype),
        "layer_scale": torch.full((512,), 1e-6, dtype=dtype),
        "out.weight": torch.zeros(64, 100, dtype=dtype),
        "scale": torch.full((512,), 40.0, dtype=dtype),
        "bn.running_var": torch.zeros(512, dtype=dtype),
    }
    found = drawn(values, torch.Generator().manual_seed(1))
    for name, value in found.items():
        assert value.dtype is dtype
        one = values[name].double()
        zeros = 1.0 if value.dim() == 1 else 0.1
        multiples = torch.where(one.abs() < 0.1, (value.double() - one) / zeros, value.double() / one)
        magnitudes = multiples.abs()
        usual = (0.09, 0.51) if float(one.abs().max()) < 0.1 else (0.49, 1.51)
        assert usual[0] < float(magnitudes.min())
        assert usual[1] < float(magnitudes.max()) < 2.01 * usual[1], "a few are twice as large"
        assert 0.02 < float((magnitudes > usual[1]).double().mean()) < 0.1
        if "running_var" not in name:
            assert bool((multiples < 0).any()), "a few have the other sign"
    assert 0.02 < float((found["norm.weight"] < 0).double().mean()) < 0.12
    assert bool((found["bn.running_var"] > 0).all())
    assert float(found["layer_scale"].double().abs().median()) > 0.1
    kept = drawn(values, torch.Generator().manual_seed(1), share=0.5)
    assert bool((kept["norm.weight"] > 0).all())


def test_what_is_the_same_can_be_given_the_same() -> None:
    values = {"a": torch.ones(8), "b": torch.zeros(8), "c": torch.ones(1, 8), "d": torch.ones(4)}
    each = drawn(values, torch.Generator().manual_seed(1))
    alike = drawn_tie_preserving(values, each, dict.fromkeys(values, 0))
    assert torch.equal(alike["a"], alike["c"].view(-1))
    assert not torch.equal(each["a"], each["c"].view(-1))
    assert all(torch.equal(alike[name], each[name]) for name in ("a", "b", "d"))
    assert torch.equal(mixed(each, values, {"b"})["b"], values["b"])


def test_what_has_the_values_of_another_looks_alike() -> None:
    ones, zeros = torch.ones(4), torch.zeros(4)
    values = {"a": ones, "b": ones.view(2, 2), "c": zeros, "d": torch.zeros(5), "e": ones}
    assert ambiguous_weights(values, ["a", "b", "c", "d"]) == {"a", "b"}


def test_what_cannot_be_moved_shields_nothing_else() -> None:
    values = {name: torch.ones(8) for name in "abcdefg"} | {"fixed": torch.full((8,), 3.0)}
    found = varied(values, torch.Generator().manual_seed(1), lambda moved: torch.equal(moved["fixed"], values["fixed"]))
    assert found.unmoved(found.each) == found.unmoved(found.tie_preserving) == ["fixed"]


@pytest.mark.parametrize("side", [-1, 1])
def test_what_is_finite_on_one_side_alone_is_moved_to_that(side: int) -> None:
    values = {"free": torch.ones(8), "bounded": torch.ones(8), "weight": torch.full((4, 4), 2.0)}

    def is_finite(moved: Values) -> bool:
        return bool(((moved["bounded"] - 1.0) * side >= 0).all())

    found = varied(values, torch.Generator().manual_seed(1), is_finite)
    assert not found.unmoved(found.each)
    assert is_finite(found.each)
    # Where it cannot be told which is which, both have what both can have.
    assert torch.equal(found.tie_preserving["free"], found.tie_preserving["bounded"])
    assert is_finite(found.tie_preserving)


def test_what_is_finite_nowhere_else_is_left_as_it_is_soon() -> None:
    values = {str(number): torch.ones(2) for number in range(1000)}
    asked: list[Values] = []

    def is_finite(moved: Values) -> bool:
        asked.append(moved)
        return False

    found = varied(values, torch.Generator().manual_seed(1), is_finite)
    assert found.unmoved(found.each) == [*values]
    assert len(asked) < 100


def test_a_model_of_the_same_kind_takes_everything() -> None:
    model, state = _made(1), _state(_made(1))
    found = match_weights(model, state)
    everything = (1 << len(state.names)) - 1
    report = found.report(len(state.names))
    assert (report.taking, report.named, report.differing) == (everything, everything, 0)
    assert report.counterparts == (1 << state.weights) - 1
    other = State(state.names, [value + 1 for value in state.values], state.weights)
    places = [state.names.index(name) for name in ("norm.bias", "bn.running_var")]
    take_weights(model, found, other, places)
    assert torch.equal(model.get_parameter("norm.bias"), torch.ones(4))
    assert torch.equal(model.get_buffer("bn.running_var"), torch.full((4,), 2.0))
    assert torch.equal(model.get_parameter("norm.weight"), torch.ones(4))


def test_what_has_another_value_is_named_and_loaded_buffers_too() -> None:
    model, state = _made(1), _state(_made(2))
    differing = {state.names[index] for index in match_weights(model, state).differing}
    assert differing == {"linear.weight", "linear.bias", "partly", "padded", "drawn"}
    assert not load_weights(model, state).differing
    assert torch.equal(model.get_buffer("drawn"), state.values[state.names.index("drawn")])


class _Refusing(nn.Module):
    """A loader that wants the checkpoints of its own model alone."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(3))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        if set(state_dict) != {"gamma"}:
            raise KeyError(f"no checkpoint of this model: {sorted(state_dict)}")
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


class _Old(nn.Module):
    """A loader with the signature that there was before there was ``strict``."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.loaded = 0

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:  # type: ignore[override]
        self.loaded += 1
        return super().load_state_dict(state_dict)


def test_a_model_that_refuses_the_references_state_has_what_was_written_to_its_tensors() -> None:
    model, state = _Refusing(), State(["weight"], [torch.ones(3)], 1)
    match = match_weights(model, state)
    take_weights(model, match, State(["weight"], [torch.full((3,), 2.0)], 1), [0])
    assert model.gamma.tolist() == [2.0] * 3


def test_a_loader_without_the_word_strict_is_called_without_it() -> None:
    model, state = _Old(), State(["weight"], [torch.ones(3)], 1)
    take_weights(model, match_weights(model, state), State(["weight"], [torch.full((3,), 2.0)], 1), [0])
    assert model.loaded == 1
    assert model.weight.tolist() == [2.0] * 3


def test_what_has_no_values_to_compare_is_no_counterpart() -> None:
    state = State(["weight"], [torch.ones(2, 3)], 1)
    for weight in (torch.ones(2, 3).to_mkldnn(), torch.ones(2, 3, device="meta"), torch.ones(2, 3).to_sparse()):
        model = nn.Module()
        model.register_buffer("weight", weight)
        found = load_weights(model, state)
        assert found.report(1).taking == 0
        assert not found.differing


class _Between(nn.Module):
    """Does something of its own whenever it is asked anything."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = _Asking(torch.ones(1))
        self.register_buffer("sums", torch.zeros(2))

    def __getattribute__(self, name: str) -> Any:
        _ASKED.append(name)
        return super().__getattribute__(name)


class _Asking(nn.Parameter):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _ASKED.append(str(func))
        return super().__torch_function__(func, types, args, kwargs or {})


class _Proxy(nn.Module):
    """A module that has never become one, and stands for another."""

    def __init__(self, inner: nn.Module) -> None:  # pylint: disable=super-init-not-called
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)


_ASKED: list[str] = []


def test_parameters_and_buffers_are_found_without_a_call_of_the_models() -> None:
    model = _Between()
    outer = nn.Sequential(model, nn.Linear(2, 3), model, _Proxy(nn.Linear(4, 4)))
    model.weight.grad = torch.ones(1)
    _ASKED.clear()
    found = _state_of(outer)
    _forget_gradients(outer)
    memory = _memory_of(outer)
    assert not _ASKED
    assert sorted(tuple(tensor.shape) for tensor in found) == [(1,), (2,), (3,), (3, 2)]
    assert model.weight.grad is None
    assert model.sums.untyped_storage().data_ptr() in memory


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_torchscript_has_is_found_too() -> None:
    class Own(torch.jit.ScriptModule):
        def parameters(self, *_arguments: Any, **_options: Any) -> Any:
            raise AssertionError("asked")

    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    shapes = sorted(tuple(tensor.shape) for tensor in _state_of(nn.Sequential(scripted, Own())))
    assert shapes == [(), (3,), (3,), (3,), (3,), (3,), (3, 2)]
    traced = torch.jit.trace(nn.Linear(2, 3), torch.ones(4, 2))
    for model in (scripted, traced):
        model(torch.ones(4, 2)).sum().backward()
        _forget_gradients(nn.Sequential(model))
        assert [*model.parameters()]
        assert all(weight.grad is None for weight in model.parameters())


class _Kept(nn.Module):
    def __init__(self, **tensors: torch.Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)


def _only(name: str, value: torch.Tensor) -> State:
    return State([name], [value], 1)


@pytest.mark.parametrize(
    ("model", "counterpart", "named"),
    [
        (_Kept(w=nn.Parameter(torch.arange(6.0).view(2, 3))), True, True),
        (_Kept(other=nn.Parameter(torch.arange(6.0).view(2, 3))), True, False),
        (_Kept(other=nn.Parameter(torch.arange(6.0).view(2, 3).t().contiguous())), True, False),
        (_Kept(w=nn.Parameter(torch.arange(6.0).view(2, 1, 3))), False, True),
        (_Kept(other=torch.arange(6.0).view(2, 3).t().contiguous()), False, False),
        (nn.Sequential(_Kept(w=nn.Parameter(torch.arange(6.0).view(2, 3)))), True, True),
    ],
    ids=["same", "renamed", "transposed", "with a one", "buffer", "within"],
)
def test_what_stands_for_a_weight_takes_its_value(model: nn.Module, counterpart: bool, named: bool) -> None:
    state = _only("w", torch.arange(6.0).view(2, 3))
    found = match_weights(model, state)
    report = found.report(1)
    assert (report.counterparts, report.taking, report.named) == (int(counterpart), 1, int(named))
    take_weights(model, found, _only("w", state.values[0] + 10), [0])
    after = match_weights(model, _only("w", state.values[0] + 10))
    assert after.report(1) == report


@pytest.mark.parametrize(
    "model",
    [
        _Kept(w=nn.Parameter(torch.arange(6.0).view(3, 2))),
        _Kept(w=nn.Parameter(torch.ones(2, 3))),
        _Kept(w=nn.Parameter(torch.arange(6.0).view(2, 3).double())),
        _Kept(w=torch.zeros(1, 1).expand(2, 3)),
    ],
    ids=["another shape", "another value", "another dtype", "expanded"],
)
def test_what_does_not_stand_for_a_weight_takes_nothing(model: nn.Module) -> None:
    value = torch.zeros(2, 3) if model.state_dict()["w"].stride() == (0, 0) else torch.arange(6.0).view(2, 3)
    report = match_weights(model, _only("w", value)).report(1)
    assert (report.counterparts, report.taking) == (0, 0)


def test_a_name_that_ends_alike_twice_says_nothing() -> None:
    model = nn.Sequential(_Kept(w=nn.Parameter(torch.ones(3))), _Kept(w=nn.Parameter(torch.zeros(3))))
    found = match_weights(model, _only("w", torch.zeros(3))).report(1)
    assert (found.taking, found.named) == (1, 0)


class _Folds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, torch.Tensor] = {}

    def load_state_dict(self, state_dict: Any, **_: Any) -> Any:
        self.given = dict(state_dict)


def test_who_loads_in_its_own_way_is_given_everything() -> None:
    model = _Folds()
    state = State(["w", "bn.running_var"], [torch.ones(2), torch.zeros(2)], 1)
    found = match_weights(model, state)
    assert found.report(2) == WeightReport(taking=3, named=3)
    take_weights(model, found, state, [1])
    assert sorted(model.given) == ["bn.running_var", "w"]
    assert model.given["w"].data_ptr() != state.values[0].data_ptr()


def test_who_has_hooked_loading_is_given_everything() -> None:
    model = _Kept(w=nn.Parameter(torch.zeros(2)))
    folded: list[torch.Tensor] = []
    model.register_load_state_dict_post_hook(lambda module, _: folded.append(module.w.detach().clone()))
    found = match_weights(model, _only("w", torch.zeros(2)))
    take_weights(model, found, _only("w", torch.ones(2)), [0])
    assert torch.equal(folded[-1], torch.ones(2))


def test_a_report_crosses_the_page() -> None:
    doorbell, descriptors = Doorbell.create(0.0)
    other = Doorbell.join(descriptors, 0.0)
    sent = WeightReport(1 << 255, 3, 1 << 1023, 1 << 512 | 1, (1 << 1024) - 1)
    other.describe_weights(sent)
    assert doorbell.weight_report() == sent
    other.close()
    doorbell.close()


def test_nothing_is_told_of_no_weights() -> None:
    assert WeightMatch().report(0) == WeightReport()
