"""The highest rates of a device, measured: bytes copied per second and operations of matrix products per second.

Measuring takes about a second, so the results are kept in a folder, one file for each device, driver and version of
torch. Call everything here while no other process works on the device.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from evaluator.files import write_json
from evaluator.roofline import PeakRates

__all__ = ["PeakRatesFile", "copy_rate", "estimate_peak_rates", "largest_cache_bytes", "measure_peak_rates"]

_MIB: Final = 2**20
_CUDA_COPY_BYTES: Final = (256 * _MIB, 1024 * _MIB)
_CPU_COPY_BYTES: Final = 256 * _MIB
_MIN_CPU_COPY_BYTES: Final = 64 * _MIB
_CACHES: Final = 4
"""A CPU's copy takes this many times its last-level cache, as far as the limit allows."""
_SHARE_OF_FREE: Final = 8
_COPY_S: Final = {"cpu": 0.3, "cuda": 0.1}
_PRODUCT_S: Final = {"cpu": 0.2, "cuda": 0.15}
_SETTLE_S: Final = {"cpu": 0.0, "cuda": 0.02}
"""The clocks of an idle GPU take this long to rise, in seconds."""
_PRODUCT_SIZES: Final = {"cpu": (256, 512, 1024, 2048), "cuda": (1024, 4096, 8192)}
_DTYPES: Final = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
_ESTIMATE_S: Final = 0.05
_UNCHANGED: Final = 5
_GAIN: Final = 1.01
_FASTER: Final = 1.1


def measure_peak_rates(device: torch.device, free_bytes: int) -> PeakRates:
    """Measure everything on ``device``, with at most a quarter of its ``free_bytes``."""
    sizes = _CUDA_COPY_BYTES if device.type == "cuda" else (_cpu_copy_bytes(),)
    fastest = max(copy_rate(device, min(size, free_bytes // _SHARE_OF_FREE)) for size in sizes)
    rates: dict[str, float] = {}
    for precision in _DTYPES:
        # A CPU has no TF32. A device that has a type may still have no product for it.
        if precision != "tf32" or device.type == "cuda":
            with contextlib.suppress(RuntimeError):
                rates[precision] = _product_rate(
                    device, precision, free_bytes // _SHARE_OF_FREE, _PRODUCT_S[device.type]
                )
    if "float32" in rates:
        # Where there is no fast product of a shorter type, converting to float32 and back is the faster way.
        shorter = ["float16", "bfloat16", *(["tf32"] if "tf32" in rates else [])]
        rates |= {name: max(rates.get(name, 0.0), rates["float32"]) for name in shorter}
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return PeakRates(fastest, rates)


def estimate_peak_rates(device: torch.device, free_bytes: int, bytes_per_s: float) -> PeakRates:
    """Measure the rate of exact float32 products in less time; the rate of copies is known already."""
    rates: dict[str, float] = {}
    with contextlib.suppress(RuntimeError):
        rates["float32"] = _product_rate(device, "float32", free_bytes // _SHARE_OF_FREE, _ESTIMATE_S)
    return PeakRates(bytes_per_s, rates)


def copy_rate(device: torch.device, size_bytes: int | None = None, budget_s: float | None = None) -> float:
    """Return the bytes read and written per second by the fastest of a few copies of ``size_bytes``, in about
    ``budget_s``.

    Without a size, the copies exceed a CPU's caches. A CPU's reads of lines that it is going to overwrite are not
    counted.
    """
    size_bytes = _cpu_copy_bytes() if size_bytes is None else size_bytes
    source, target = (torch.zeros(max(1, size_bytes // 4), dtype=torch.int32, device=device) for _ in range(2))
    each_s = (budget_s or _COPY_S[device.type]) / 2
    # Drivers and vendors' libraries copy in other ways than a kernel of torch.
    best_ms = min(
        _best_ms(lambda: target.copy_(source), device, each_s),
        _best_ms(lambda: torch.neg(source, out=target), device, each_s),
    )
    return 2 * source.numel() * source.element_size() / (best_ms / 1000)


def largest_cache_bytes() -> int:
    """Return the size of the last-level cache of the first processor, in bytes; 0 where the kernel does not report
    it."""
    found = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            text = path.read_text().strip()
            found.append(int(text.rstrip("KMG")) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1))
    return max(found)


class PeakRatesFile:
    """Peak rates of one device, kept in ``folder`` between processes; without a folder they are measured each time.

    ``identity``: everything that the rates depend on. Another driver, for example, has another file.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any]) -> None:
        self._identity = dict(identity)
        digest = hashlib.sha256(json.dumps(self._identity, sort_keys=True).encode()).hexdigest()[:16]
        self._path = None if folder is None else folder / f"{digest}.json"

    def load_or_measure(self, estimate: Callable[[], PeakRates], measure: Callable[[], PeakRates]) -> PeakRates:
        """Return the rates of the file. Without a file, or where an ``estimate`` (a spot check) finds a rate more than
        10 % higher, return those of ``measure``. The higher one of two measurements of a rate is kept: a busy machine
        is slower than it can be, and none is faster."""
        kept = self._read()
        if kept is None:
            measured = measure()
        elif _exceeds(estimate(), kept):
            measured = _highest(kept, measure())
        else:
            return kept
        # A folder that cannot be written to costs the next judge a second, and nothing else.
        with contextlib.suppress(OSError):
            self._write(measured)
        return measured

    def _read(self) -> PeakRates | None:
        """Return the kept rates; ``None`` for anything that ``_write`` has not written."""
        if self._path is None:
            return None
        try:
            data = json.loads(self._path.read_text())
            found = PeakRates(float(data["bytes_per_s"]), {k: float(v) for k, v in data["operations_per_s"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        rates = (found.bytes_per_s, *found.operations_per_s.values())
        return found if data.get("identity") == self._identity and all(0 < rate < math.inf for rate in rates) else None

    def _write(self, peak_rates: PeakRates) -> None:
        if self._path is None:
            return
        data = {
            "identity": self._identity,
            "bytes_per_s": peak_rates.bytes_per_s,
            "operations_per_s": dict(peak_rates.operations_per_s),
        }
        write_json(self._path, data)


def _exceeds(estimate: PeakRates, kept: PeakRates) -> bool:
    return estimate.bytes_per_s > _FASTER * kept.bytes_per_s or any(
        rate > _FASTER * kept.operations_per_s.get(precision, 0.0)
        for precision, rate in estimate.operations_per_s.items()
    )


def _highest(one: PeakRates, other: PeakRates) -> PeakRates:
    rates = dict(one.operations_per_s)
    for precision, rate in other.operations_per_s.items():
        rates[precision] = max(rate, rates.get(precision, 0.0))
    return PeakRates(max(one.bytes_per_s, other.bytes_per_s), rates)


def _cpu_copy_bytes() -> int:
    """Return a size well beyond the last-level cache, within the means of a small machine."""
    return min(_CPU_COPY_BYTES, max(_MIN_CPU_COPY_BYTES, _CACHES * largest_cache_bytes()))


def _product_rate(device: torch.device, precision: str, room_bytes: int, budget_s: float) -> float:
    """Return the operations per second of the fastest square matrix product; larger ones as long as the time allows."""
    dtype = _DTYPES[precision]
    with _tf32(allowed=precision == "tf32"):
        # The first product of a type loads its library.
        torch.mm(*(torch.ones(128, 128, dtype=dtype, device=device) for _ in range(2))).sum().item()
        fastest, begin = 0.0, time.perf_counter()
        for size in _PRODUCT_SIZES[device.type]:
            left_s = budget_s - (time.perf_counter() - begin)
            expected_s = 2 * size**3 / fastest if fastest else 0.0
            # A first call, and two for comparison with it.
            if 3 * expected_s > left_s or 3 * size * size * dtype.itemsize > room_bytes:
                break
            left, right = (torch.ones(size, size, dtype=dtype, device=device).mul_(2.0**-6) for _ in range(2))
            target = torch.empty_like(left)
            best_ms = _best_ms(lambda a=left, b=right, c=target: torch.mm(a, b, out=c), device, left_s / 2)  # type: ignore[misc]
            fastest = max(fastest, 2 * size**3 / (best_ms / 1000))
    if not fastest:
        raise RuntimeError("no room for a matrix product")
    return fastest


def _best_ms(call: Callable[[], object], device: torch.device, budget_s: float) -> float:
    """Return the fastest of several calls: until a few in a row are no faster than before, or the time is up."""
    best_ms, unchanged = math.inf, 0
    begin = time.perf_counter()
    while True:
        now_ms = _call_ms(call, device)
        unchanged = 0 if now_ms * _GAIN < best_ms else unchanged + 1
        best_ms = min(best_ms, now_ms)
        spent_s = time.perf_counter() - begin
        if spent_s > budget_s or (unchanged >= _UNCHANGED and spent_s > _SETTLE_S[device.type]):
            return best_ms


def _call_ms(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))
    start = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - start)


@contextlib.contextmanager
def _tf32(*, allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
