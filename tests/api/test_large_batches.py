"""Ten thousand lines in one call: in a process of its own, whose memory is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import asyncio, json, sys, time
from pathlib import Path

import httpx

from api.app import create_app
from runtime.settings import Settings

folder, problems, lines, filler = sys.argv[1], sys.argv[2], int(sys.argv[3]), "#" + "x" * 4_000


async def body():
    for number in range(lines):
        code = f"class ModelNew: ...\\n# {number}\\n{filler}\\n"
        yield json.dumps({"problem": "relu", "device": "cpu", "code": code}).encode() + b"\\n"


def peak_mib():
    # Not getrusage: that counts what the process was before it became this program.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def main():
    app = create_app(Settings(data_dir=Path(folder), problems_dir=Path(problems)))
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t", timeout=None) as client:
            kind = {"Content-Type": "application/x-ndjson"}
            # What is loaded on first use is not what grows.
            await client.post("/api/v1/batches", content=few(), headers=kind)
            before, started = peak_mib(), time.monotonic()
            answer = await client.post("/api/v1/batches", content=body(), headers=kind)
            seconds = time.monotonic() - started
            record = answer.json()
            begun = time.monotonic()
            await client.get(record["links"]["self"])
            read_s = time.monotonic() - begun
            woken = len(list((Path(folder) / "queue" / "build").iterdir()))
            print(json.dumps({
                "status": answer.status_code, "items": record["items"], "shared": record["shared"], "woken": woken,
                "grown_mib": peak_mib() - before, "seconds": seconds, "read_s": read_s,
            }))


async def few():
    for number in range(500):
        yield json.dumps({"problem": "relu", "device": "cpu", "code": f"x = {number}"}).encode() + b"\\n"


asyncio.run(main())
"""


def test_ten_thousand_lines_come_in_by_one_call_and_in_little_memory(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    argv = [sys.executable, "-c", _PROGRAM, str(tmp_path / "data"), str(root / "reference_models"), "10000"]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)
    assert (found["status"], found["items"], found["shared"]) == (202, 10_000, 0)
    # The body has 40 MB.
    assert found["grown_mib"] < 25, found
    # Ten thousand messages would keep the workers of the queue from everything else.
    assert found["woken"] < 50, found
