"""The commands that judge or serve on this machine, and the door to the packages of the service.

A wheel holds these packages, ``api``, ``evaluator`` and the others, in a folder of this one. So an installation leaves
no such name to others. Importing this package puts the folder on the path of modules. In a checkout they lie beside
this package.
"""

from __future__ import annotations

import sys

# As in ``kerneljudge``: the working folder is nothing that modules are imported from.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != __path__[0].rpartition("/")[0]:
    del sys.path[0]

from pathlib import Path
from typing import Final

__all__ = ["ROOT"]

_HERE: Final = Path(__file__).resolve().parent
ROOT: Final = _HERE / "_packages" if (_HERE / "_packages").is_dir() else _HERE.parent
"""The folder with the packages of the service, and with the problems."""

# First, because other distributions may have modules of these names.
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
