"""Builds that travel between machines, through a real S3-compatible server: what arrives, and what is not believed."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluator.artifact_store import StoreAddress
from evaluator.builder.builder import Builder
from evaluator.builder.cache import Artifact, ArtifactCache, BuildFailure
from evaluator.builder.package import UnusablePackage, open_package, seal_package
from evaluator.builder.request import BuildRequest
from evaluator.builder.resources import KernelResources
from evaluator.builder.store import SharedArtifacts, open_store
from evaluator.sandbox.confinement import Confinement
from evaluator.sandbox.filesystem import Root, visible_paths
from tests.object_store import ObjectServer, object_server
from tests.services import free_port

_KEY = "ab" * 32
_SECRET = b"a secret of thirty-two characters"
_LIBRARY = b"\x7fELF\n\n\x00library\n" * 1000


@pytest.fixture(scope="module")
def running_server() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def server(running_server: ObjectServer) -> ObjectServer:
    running_server.empty()
    return running_server


def _artifact(key: str = _KEY) -> Artifact:
    kernel = KernelResources("scale", "sm_90", registers=16)
    return Artifact(key, "scale", None, ("scale",), 1.5, "log\n", (kernel,), "split", {"precompiled": "has CUDA"})


def _machine(folder: Path, address: StoreAddress) -> SharedArtifacts:
    return SharedArtifacts(ArtifactCache(folder), address)


def _stored(machine: SharedArtifacts, folder: Path, key: str = _KEY) -> Artifact:
    library = folder / "extension.so"
    library.write_bytes(_LIBRARY)
    return machine.store(_artifact(key), library)


# --- on the way ------------------------------------------------------------------------------------------------------


def test_what_one_machine_has_built_another_one_has_with_all_that_is_known_of_it(
    server: ObjectServer, tmp_path: Path
) -> None:
    built = _stored(_machine(tmp_path / "one", server.address()), tmp_path)
    other = _machine(tmp_path / "other", server.address())
    assert other.find(_KEY) is None, "not before it is asked for with the right to build it"
    found = other.obtain(_KEY)
    assert isinstance(found, Artifact)
    assert found.path is not None
    assert Path(found.path).read_bytes() == _LIBRARY
    assert found.path.startswith(str(tmp_path / "other"))
    assert (found.kernels, found.resources, found.log, found.recipe, found.refusals) == (
        built.kernels,
        built.resources,
        built.log,
        built.recipe,
        built.refusals,
    )


def test_what_has_arrived_once_is_at_hand_from_then_on(server: ObjectServer, tmp_path: Path) -> None:
    _stored(_machine(tmp_path / "one", server.address()), tmp_path)
    other = _machine(tmp_path / "other", server.address())
    arrived = other.obtain(_KEY)
    server.empty()
    assert other.find(_KEY) == arrived
    assert isinstance(arrived, Artifact)


def test_a_build_without_a_library_travels_as_well(server: ObjectServer, tmp_path: Path) -> None:
    _machine(tmp_path / "one", server.address()).store(_artifact(), None)
    found = _machine(tmp_path / "other", server.address()).obtain(_KEY)
    assert found == _artifact()


def test_a_failure_stays_where_it_was_found(server: ObjectServer, tmp_path: Path) -> None:
    one = _machine(tmp_path / "one", server.address())
    failure = BuildFailure("scale", "no such thing", "error: no such thing", 1.0)
    one.store_failure(_KEY, failure)
    assert one.find(_KEY) == failure
    assert server.names() == []


def test_what_is_in_no_store_is_nowhere(server: ObjectServer, tmp_path: Path) -> None:
    assert _machine(tmp_path / "one", server.address()).obtain(_KEY) is None


def test_without_an_address_the_folder_is_all_there_is(tmp_path: Path) -> None:
    folder = ArtifactCache(tmp_path)
    assert open_store(folder, None) is folder


# --- what is not believed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 30, 200, -1])
def test_an_altered_object_is_not_loaded_and_is_replaced_by_the_next_build(
    server: ObjectServer, tmp_path: Path, place: int, capfd: pytest.CaptureFixture[str]
) -> None:
    _stored(_machine(tmp_path / "one", server.address()), tmp_path)
    (name,) = server.names()
    genuine = server.read(name)
    altered = bytearray(genuine)
    altered[place] ^= 1
    server.write(name, bytes(altered))
    other = _machine(tmp_path / "other", server.address())
    assert other.obtain(_KEY) is None
    assert "is not used" in capfd.readouterr().err
    _stored(other, tmp_path)
    assert server.read(name) == genuine


def test_what_another_secret_has_signed_is_not_loaded(server: ObjectServer, tmp_path: Path) -> None:
    _stored(_machine(tmp_path / "one", server.address("another secret, as long as a secret is")), tmp_path)
    assert _machine(tmp_path / "other", server.address()).obtain(_KEY) is None


def test_an_object_in_anothers_place_is_not_loaded(server: ObjectServer, tmp_path: Path) -> None:
    _stored(_machine(tmp_path / "one", server.address()), tmp_path)
    (name,) = server.names()
    other_key = "cd" * 32
    server.write(name.replace(_KEY[:2] + "/" + _KEY, f"cd/{other_key}"), server.read(name))
    assert len(server.names()) == 2
    assert _machine(tmp_path / "other", server.address()).obtain(other_key) is None


@pytest.mark.parametrize("content", [b"", b"\n\n\n", b"kerneljudge artifact 1\n", b"\x00" * 1000, b"[" * 10000])
def test_nothing_in_a_bucket_does_more_harm_than_to_be_missing(
    server: ObjectServer, tmp_path: Path, content: bytes
) -> None:
    server.write(f"builds/{_KEY[:2]}/{_KEY}", content)
    assert _machine(tmp_path / "one", server.address()).obtain(_KEY) is None


def test_a_package_cut_short_at_any_place_is_refused() -> None:
    package = seal_package(_artifact(), b"library", _SECRET)
    assert open_package(package, _KEY, _SECRET)[1] == b"library"
    for length in range(len(package)):
        with pytest.raises(UnusablePackage):
            open_package(package[:length], _KEY, _SECRET)


def test_a_damaged_library_in_the_folder_is_as_good_as_not_there(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    library = tmp_path / "extension.so"
    library.write_bytes(_LIBRARY)
    stored = cache.store(_artifact(), library)
    assert stored.path is not None
    assert cache.find(_KEY) == stored
    Path(stored.path).chmod(0o644)
    Path(stored.path).write_bytes(_LIBRARY[:-1] + b"!")
    assert cache.find(_KEY) is None


# --- a store that is away --------------------------------------------------------------------------------------------


def test_a_store_that_is_away_is_asked_once_and_then_left_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    machine = _machine(tmp_path / "one", ObjectServer(free_port()).address())
    assert machine.obtain(_KEY) is None
    stored = _stored(machine, tmp_path)
    assert machine.obtain(_KEY) == stored
    assert capfd.readouterr().err.count("the artifact store is away") == 1


# --- the builder -----------------------------------------------------------------------------------------------------


def _builder(folder: Path, address: StoreAddress, path: str) -> Builder:
    """A builder that finds compilers on ``path``."""
    folder.mkdir()
    store = open_store(ArtifactCache(folder / "cache"), address)
    confinement = Confinement(Root(visible_paths(), (), (), 2**30), 2**32, 256, 2**30)
    environment = {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    return Builder(store, {"nvcc": None}, environment, folder, confinement, slots=1)


def test_a_machine_without_a_compiler_loads_what_another_has_built(server: ObjectServer, tmp_path: Path) -> None:
    source = '#include <Python.h>\nstatic PyModuleDef m{PyModuleDef_HEAD_INIT, "one"};\n'
    source += "PyMODINIT_FUNC PyInit_one() { return PyModule_Create(&m); }\n"
    request = BuildRequest(name="one", cpp_sources=(source,), no_implicit_headers=True)
    never = threading.Event()
    # Ninja lies beside the interpreter, and need not be on this process's path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    builder = _builder(tmp_path / "build", server.address(), path)
    built, cached = builder.build(request, 250.0, never)
    assert isinstance(built, Artifact), built
    assert not cached
    found, cached = _builder(tmp_path / "gpu", server.address(), "/nowhere").build(request, 60.0, never)
    assert isinstance(found, Artifact), found
    assert cached
    assert built.path is not None
    assert found.path is not None
    assert Path(found.path).read_bytes() == Path(built.path).read_bytes()
    assert found.seconds == built.seconds


def test_what_leads_to_the_store_is_in_no_process_that_a_builder_starts(server: ObjectServer, tmp_path: Path) -> None:
    _machine(tmp_path, server.address())
    assert not set(server.variables) & set(os.environ)


# --- the address -----------------------------------------------------------------------------------------------------


def test_an_address_is_a_bucket_with_or_without_a_folder() -> None:
    address = StoreAddress.parse("s3://bucket/a/b/", "k" * 32, {"AWS_REGION": "x", "PATH": "y", "AWS_EMPTY": ""})
    assert (address.bucket, address.prefix, address.variables) == ("bucket", "a/b", {"AWS_REGION": "x"})
    assert StoreAddress.parse("s3://bucket", "k" * 32, {}).prefix == ""
    assert StoreAddress.from_json(address.to_json()) == address
    assert "k" * 32 not in repr(address)


@pytest.mark.parametrize("url", ["http://bucket", "s3:///prefix", "bucket", "s3://bucket?x=1"])
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must be s3://"):
        StoreAddress.parse(url, "k" * 32, {})


def test_a_short_key_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="at least 32 characters") as refused:
        StoreAddress.parse("s3://bucket", "too short a key", {})
    assert "too short a key" not in str(refused.value)
