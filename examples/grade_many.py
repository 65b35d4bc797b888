"""Hand in many model answers at once, and print each verdict as it comes: ``grade_many.py relu *.md``."""

import asyncio
import os
import sys
from pathlib import Path

from kerneljudge import AsyncClient
from kerneljudge.client import DEFAULT_URL


async def main(problem: str, files: list[str]) -> None:
    """Every file holds one answer."""
    async with AsyncClient(os.environ.get("KERNELJUDGE_URL", DEFAULT_URL)) as service:
        records = await service.submit_many(
            {"problem": problem, "response": Path(file).read_text(), "label": Path(file).name} for file in files
        )
        async for record in service.as_completed(str(record["id"]) for record in records):
            print(f"{record['label']}: {record['verdict'] or record['status']}\n{record['feedback']}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
