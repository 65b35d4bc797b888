"""Whose kernels a profile is of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from evaluator.runner.profile import base_name, device_time_us, split_us, triton_kernels

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, float)"


@pytest.mark.parametrize(
    ("demangled", "name"),
    [
        ("relu_kernel(float const*, float*, int)", "relu_kernel"),
        ("void relu_kernel<float>(float const*)", "relu_kernel"),
        ("void mine::relu_kernel<(int)4, float>(float const*)", "mine::relu_kernel"),
        ("(anonymous namespace)::relu_kernel(float*)", "relu_kernel"),
        ("void mine::(anonymous namespace)::relu_kernel<4>(float*)", "mine::relu_kernel"),
        (ELEMENTWISE, "at::native::vectorized_elementwise_kernel"),
        ("triton_poi_fused_relu_0", "triton_poi_fused_relu_0"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ("", ""),
    ],
)
def test_a_kernel_is_known_by_its_bare_name(demangled: str, name: str) -> None:
    assert base_name(demangled) == name


def test_time_is_split_by_whose_kernels_ran() -> None:
    ran = [("void relu_kernel<float>(float*)", 30.0), (ELEMENTWISE, 10.0), ("Memset (Device)", 2.0), ("add", 8.0)]
    assert split_us(ran, {"relu_kernel<double>", "add"}) == (38.0, 50.0)
    assert split_us(ran, set()) == (0.0, 50.0)
    assert split_us([], {"relu_kernel"}) == (0.0, 0.0)


def test_a_name_that_could_not_be_read_owns_nothing() -> None:
    assert split_us([("", 1.0), ("add", 1.0)], {"", "void "}) == (0.0, 2.0)


def test_a_kernel_of_the_same_name_in_torch_is_not_the_candidates() -> None:
    assert split_us([("void at::native::relu_kernel<float>(int)", 5.0)], {"relu_kernel"}) == (0.0, 5.0)


def test_what_triton_has_compiled_is_found_in_its_cache(tmp_path: Path) -> None:
    assert triton_kernels(tmp_path / "none") == frozenset()
    for name in ("ABC/fused_kernel.cubin", "ABC/fused_kernel.json", "DEF/other.cubin", "DEF/half.ptx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert triton_kernels(tmp_path) == {"fused_kernel", "other"}


def test_without_a_device_there_is_no_time_to_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_time_us(lambda: torch.zeros(4), {"relu_kernel"}, None) == (0.0, 0.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_on_a_device_the_time_of_its_kernels_is_told() -> None:
    x = torch.randn(1 << 20, device="cuda")
    torch.relu(x)
    own_us, total_us = device_time_us(lambda: torch.relu(x), {"at::native::vectorized_elementwise_kernel"}, None)
    assert 0 < own_us == total_us
    assert device_time_us(lambda: torch.relu(x), {"relu_kernel"}, None)[0] == 0
