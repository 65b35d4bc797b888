"""Folders for one process each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.processes import wait_until
from worker.scratch import own_scratch

_ROOT = Path(__file__).parent.parent.parent
_PROGRAM = """
import sys, time
from pathlib import Path
from worker.scratch import own_scratch
with own_scratch(Path(sys.argv[1])) as own:
    (own / "left").write_text("")
    print(own, flush=True)
    time.sleep(600)
"""


def test_a_folder_is_gone_with_its_process(tmp_path: Path) -> None:
    with own_scratch(tmp_path / "scratch") as own:
        (own / "file").write_text("")
        assert own.parent == tmp_path / "scratch"
    assert not own.exists()


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kerneljudge-file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "kerneljudge-link").symlink_to(tmp_path / "mine")
    (tmp_path / "kerneljudge-old").mkdir()
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(tmp_path)], cwd=_ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        other = Path(process.stdout.readline().decode().strip())
        with own_scratch(tmp_path) as own:
            assert (other / "left").exists()
    finally:
        process.kill()
        process.communicate()
    assert other.exists()
    with own_scratch(tmp_path) as own:
        wait_until(lambda: not other.exists(), "what was left to be removed")
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"lock", "mine", "kerneljudge-file", "kerneljudge-link", own.name}
