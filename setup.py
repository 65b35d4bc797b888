"""The packages and the dependencies of ``kerneljudge-server``; pyproject.toml has the rest.

The packages of the service go into a folder of ``kerneljudge_server``, which puts it on the path of modules. So the
wheel leaves one name in an environment: docs/decisions/0036-two-distributions.md.
"""

from __future__ import annotations

import runpy
from pathlib import Path

from setuptools import find_packages, setup

SERVICE = ("api", "evaluator", "runtime", "storage", "worker")
FOLDER = "kerneljudge_server._packages"

version = runpy.run_path("kerneljudge/_version.py")["__version__"]
requirements = [line for line in Path("requirements.in").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
found = find_packages(include=[pattern for name in SERVICE for pattern in (name, f"{name}.*")])

setup(
    version=version,
    install_requires=[f"kerneljudge=={version}", *requirements],
    packages=["kerneljudge_server", f"{FOLDER}.reference_models", *(f"{FOLDER}.{name}" for name in found)],
    package_dir={f"{FOLDER}.{name}": name for name in (*SERVICE, "reference_models")},
    package_data={
        f"{FOLDER}.api": ["templates/*", "static/*"],
        f"{FOLDER}.storage": ["migrations/*", "migrations/versions/*"],
        f"{FOLDER}.reference_models": ["*/*"],
    },
    include_package_data=False,
)
