"""The cache of built extensions: what is kept, for how long, and who may build."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from evaluator.builder.cache import Artifact, ArtifactCache, BuildFailure

_DAY_S = 86400


def _store(cache: ArtifactCache, key: str, folder: Path, size: int = 7) -> Artifact:
    library = folder / "x.so"
    library.write_bytes(b"x" * size)
    return cache.store(Artifact(key, "x", None, (), 1.0, ""), library)


def _age(root: Path, key: str, seconds: float, name: str = "artifact.json") -> None:
    then = time.time() - seconds
    os.utime(root / key[:2] / key / name, (then, then))


def test_an_artifact_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    library = tmp_path / "x.so"
    library.write_bytes(b"library")
    key = "ab" * 32
    stored = cache.store(Artifact(key, "x", None, ("kernel",), 1.5, "log"), library)
    assert cache.find(key) == stored
    assert stored.path is not None
    assert Path(stored.path).read_bytes() == b"library"
    assert Path(stored.path).stat().st_mode & 0o222 == 0


def test_storing_twice_keeps_the_first(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    library = tmp_path / "x.so"
    library.write_bytes(b"first")
    key = "cd" * 32
    first = cache.store(Artifact(key, "x", None, (), 1.0, ""), library)
    library.write_bytes(b"second")
    cache.store(Artifact(key, "x", None, (), 1.0, ""), library)
    assert first.path is not None
    assert Path(first.path).read_bytes() == b"first"
    assert [path.name for path in (tmp_path / "cache" / "cd").iterdir() if path.is_dir()] == [key]


def test_a_damaged_entry_is_as_good_as_not_there(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    library = tmp_path / "x.so"
    library.write_bytes(b"library")
    key = "ab" * 32
    cache.store(Artifact(key, "x", None, (), 1.0, ""), library)
    (tmp_path / "cache" / "ab" / key / "artifact.json").write_text("{")
    assert cache.find(key) is None
    assert cache.store(Artifact(key, "x", None, (), 1.0, ""), library) == cache.find(key)


def test_an_unknown_key_is_not_found(tmp_path: Path) -> None:
    assert ArtifactCache(tmp_path).find("ef" * 32) is None


def test_two_builders_of_one_key_take_turns(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    inside: list[int] = []
    most: list[int] = []

    def hold() -> None:
        with cache.building("aa" * 32):
            inside.append(1)
            most.append(len(inside))
            threading.Event().wait(0.02)
            inside.pop()

    threads = [threading.Thread(target=hold) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5


def test_what_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    cache = ArtifactCache(root, limit_bytes=14_000)
    keys = [digit * 64 for digit in "abc"]
    for age_s, key in zip((3000, 2000, 1000), keys, strict=True):
        _store(cache, key, tmp_path, 4000)
        _age(root, key, age_s)
    assert cache.find(keys[0]) is not None  # used once more: now the second is the one that was used longest ago
    _store(cache, "d" * 64, tmp_path, 4000)
    assert [cache.find(key) is not None for key in (*keys, "d" * 64)] == [True, False, True, True]
    assert not [path for path in root.glob("??/*") if path.name.startswith(".")]


def test_what_was_just_found_stays_however_little_room_there_is(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache", limit_bytes=1)
    artifacts = [_store(cache, digit * 64, tmp_path) for digit in "ab"]
    assert [cache.find(artifact.key) for artifact in artifacts] == artifacts


def test_what_an_interrupted_builder_left_makes_room_too(tmp_path: Path) -> None:
    left = tmp_path / "cache" / "ab" / ".new-x"
    left.mkdir(parents=True)
    (left / "extension.so").write_bytes(b"x" * 4000)
    os.utime(left, (time.time() - _DAY_S,) * 2)
    _store(ArtifactCache(tmp_path / "cache", limit_bytes=1000), "cd" * 32, tmp_path)
    assert not left.exists()


def test_a_failure_is_kept_for_a_day(tmp_path: Path) -> None:
    root, key = tmp_path / "cache", "ab" * 32
    cache = ArtifactCache(root)
    failure = BuildFailure("x", "main.cpp:3: error: no such thing", "log", 1.5)
    cache.store_failure(key, failure)
    assert cache.find(key) == failure
    _age(root, key, _DAY_S + 60, "log.txt")
    assert cache.find(key) is None
    assert _store(cache, key, tmp_path) == cache.find(key)


@pytest.mark.parametrize("manifest", ["{", "{}", '{"artifact": {}}', '{"failure": {"name": 1}}'])
def test_what_is_no_entry_is_removed(tmp_path: Path, manifest: str) -> None:
    root, key = tmp_path / "cache", "ab" * 32
    cache = ArtifactCache(root)
    _store(cache, key, tmp_path)
    (root / key[:2] / key / "artifact.json").write_text(manifest)
    assert cache.find(key) is None
    assert not (root / key[:2] / key).exists()


def test_an_entry_without_its_library_makes_room_for_a_new_build(tmp_path: Path) -> None:
    """It was as good as not there, and kept its place all the same: each new build had a path to nothing."""
    root, key = tmp_path / "cache", "ab" * 32
    cache = ArtifactCache(root)
    artifact = _store(cache, key, tmp_path)
    assert artifact.path is not None
    library = Path(artifact.path)
    library.chmod(0o644)
    library.unlink()
    assert cache.find(key) is None
    again = _store(cache, key, tmp_path)
    assert again == cache.find(key)
    assert again.path is not None
    assert Path(again.path).exists()


def test_a_damaged_entry_that_another_builder_left_meanwhile_is_replaced(tmp_path: Path) -> None:
    """The builder has looked before, and a folder without its library lies in the place of the new one."""
    root, key = tmp_path / "cache", "ab" * 32
    cache = ArtifactCache(root)
    first = _store(cache, key, tmp_path)
    assert first.path is not None
    Path(first.path).unlink()
    second = _store(cache, key, tmp_path, size=9)
    assert second.path is not None
    assert Path(second.path).read_bytes() == b"x" * 9
    assert not list(root.glob("??/.new-*"))


def test_two_builders_may_replace_a_damaged_entry_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, key = tmp_path / "cache", "ab" * 32
    cache, other = ArtifactCache(root), ArtifactCache(root)
    first = _store(cache, key, tmp_path)
    assert first.path is not None
    Path(first.path).unlink()
    find = cache.find

    def found(wanted: str) -> Artifact | BuildFailure | None:
        entry = find(wanted)
        _store(other, key, tmp_path, size=9)  # the other one is a moment ahead
        return entry

    monkeypatch.setattr(cache, "find", found)
    second = _store(cache, key, tmp_path, size=9)
    assert find(key) == second
    assert second.path is not None
    assert Path(second.path).read_bytes() == b"x" * 9
    assert not list(root.glob("??/.new-*"))


@pytest.mark.parametrize("damage", ["library is a folder", "failure without a log"])
def test_an_entry_with_any_damage_makes_room_for_a_new_build(tmp_path: Path, damage: str) -> None:
    root, key = tmp_path / "cache", "ab" * 32
    cache = ArtifactCache(root)
    folder = root / key[:2] / key
    if damage == "library is a folder":
        _store(cache, key, tmp_path)
        (folder / "extension.so").unlink()
        (folder / "extension.so").mkdir()
    else:
        cache.store_failure(key, BuildFailure("x", "main.cpp:3: error: no such thing", "log", 1.5))
        (folder / "log.txt").unlink()
    assert cache.find(key) is None
    assert _store(cache, key, tmp_path) == cache.find(key)


def test_an_entry_is_kept_where_the_machine_cannot_read_it_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    cache, key = ArtifactCache(tmp_path / "cache"), "ab" * 32
    stored = _store(cache, key, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("evaluator.builder.cache._read", none_left)
        with pytest.raises(OSError, match="Too many"):
            cache.find(key)
    assert cache.find(key) == stored


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = ArtifactCache(tmp_path / "cache")
    monkeypatch.setattr("evaluator.builder.cache.shutil.copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        _store(cache, "ab" * 32, tmp_path)
    assert not list((tmp_path / "cache").glob("??/.new-*"))
