"""Secret randomness for a problem's inputs, whatever ``get_inputs`` seeds.

A ``get_inputs`` that calls ``torch.manual_seed(0)`` makes the same values in each call, and a candidate could return
its first answer each time. While ``SecretSeeds.held`` is in force, the seeding functions and generator classes of
torch, NumPy and Python take a derived value. It is derived from the judge's secret seed and the requested seed. So
equal seeds still make equal values within one call, and only the judge can make the same inputs once more.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import torch

__all__ = ["SECRET_SEEDS", "SecretSeeds", "seed_generators"]

_UNSEEDED: Final = 67280421310721
"""The seed that torch gives a new generator."""
_BIT_GENERATORS: Final = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_CUDA_SEED: Final = torch.cuda.manual_seed_all
_PYTHON_SEED: Final = random.seed
_NUMPY_SEED: Final = np.random.seed
_DEFAULT_RNG: Final = np.random.default_rng
_SEED_SEQUENCE: Final = np.random.SeedSequence


def seed_generators(seed: int) -> None:
    """Seed torch's own generators, of the CPU and of CUDA.

    ``torch.manual_seed`` does that as well, and takes 1.5 ms: it records the seed for every kind of device that could
    still appear.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        _CUDA_SEED(seed)  # the real function, not its stand-in


class SecretSeeds:
    """The stand-ins for the seeding functions. Names that a problem imported while they were held stay stand-ins."""

    def __init__(self) -> None:
        self._secret: int | None = None
        self._unseeded = 0
        self._stand_ins = self._make_stand_ins()

    @contextlib.contextmanager
    def held(self, secret: int) -> Iterator[None]:
        """Seed all global generators with ``secret``, and derive all seeds from it meanwhile."""
        seed_generators(secret)
        _PYTHON_SEED(secret)
        _NUMPY_SEED(secret % 2**32)
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in self._stand_ins]
        outer = self._secret, self._unseeded
        self._secret, self._unseeded = secret, 0
        for owner, name, stand_in in self._stand_ins:
            setattr(owner, name, stand_in)
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)
            self._secret, self._unseeded = outer

    def derive(self, given: Any) -> int:
        """Return 63 bits for the seed ``given``; where it is ``None``, other ones each time."""
        if given is None:
            self._unseeded += 1
            given = "unseeded", self._unseeded
        elif isinstance(given, np.ndarray):
            given = given.tolist()
        secret = secrets.randbits(63) if self._secret is None else self._secret
        digest = hashlib.blake2b(repr((secret, given)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1

    def _make_stand_ins(self) -> list[tuple[Any, str, Any]]:
        derive = self.derive

        def seed_torch(seed: int) -> torch.Generator:
            seed_generators(derive(seed))
            return torch.default_generator

        def seed_cuda(seed: int) -> None:
            seed_torch(seed)

        def seed_python(a: Any = None, version: int = 2) -> None:
            _PYTHON_SEED(derive(a), version)

        def seed_numpy(seed: Any = None) -> None:
            _NUMPY_SEED(derive(seed) % 2**32)

        def new_numpy_generator(seed: Any = None) -> np.random.Generator:
            made = isinstance(seed, np.random.BitGenerator | np.random.Generator | _SEED_SEQUENCE)
            return _DEFAULT_RNG(seed if made else derive(seed))

        class Generator(torch.Generator):
            def __init__(self, *_device: Any, **_named: Any) -> None:  # its ``__new__`` has taken the arguments
                super().manual_seed(derive(_UNSEEDED))

            def manual_seed(self, seed: int) -> Generator:
                super().manual_seed(derive(seed))
                return self

        class Random(random.Random):
            def seed(self, a: Any = None, version: int = 2) -> None:
                super().seed(derive(a), version)

        class RandomState(np.random.RandomState):
            def __init__(self, seed: Any = None) -> None:
                super().__init__(seed if isinstance(seed, np.random.BitGenerator) else derive(seed) % 2**32)

            def seed(self, seed: Any = None) -> None:
                super().seed(derive(seed) % 2**32)

        class SeedSequence(_SEED_SEQUENCE):  # type: ignore[valid-type, misc]
            def __init__(self, entropy: Any = None, **rest: Any) -> None:
                super().__init__(derive(entropy), **rest)

        return [
            (torch, "manual_seed", seed_torch),
            (torch.random, "manual_seed", seed_torch),
            (torch.cuda, "manual_seed", seed_cuda),
            (torch.cuda, "manual_seed_all", seed_cuda),
            (torch, "Generator", Generator),
            (random, "seed", seed_python),
            (random, "Random", Random),
            (np.random, "seed", seed_numpy),
            (np.random, "default_rng", new_numpy_generator),
            (np.random, "RandomState", RandomState),
            (np.random, "SeedSequence", SeedSequence),
            *((np.random, name, _held_bits(getattr(np.random, name), derive)) for name in _BIT_GENERATORS),
        ]


def _held_bits(kind: Any, derive: Callable[[Any], int]) -> type:
    """Return a class of NumPy's bit generators that takes derived seeds."""

    def construct(self: Any, seed: Any = None, **rest: Any) -> None:
        kind.__init__(self, seed if isinstance(seed, _SEED_SEQUENCE) else derive(seed), **rest)

    return type(kind.__name__, (kind,), {"__init__": construct})


SECRET_SEEDS: Final = SecretSeeds()
