"""A plugin for GCC that has it instantiate the templates of a header while it precompiles it. Torch-free.

GCC defers the instantiations that a header's own functions need to the end of a translation unit. A precompiled header
does not have that end. So each source that includes the header pays for them: for torch's, 4 of 9 seconds, however
short the source is. The plugin calls the compiler's own function for it where the header ends. It is loaded while a
header is precompiled, and never where a candidate's source is compiled.

Sources: "GCC internals", chapter "Plugins"; ``c_parse_final_cleanups`` in GCC's ``cp/decl2.cc``.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from evaluator.builder.recipes.preparation import PreparationFailed, run_tool

__all__ = ["PLUGIN_TEXT", "WHOLE_TEXT", "Plugin", "plugin_headers"]

WHOLE_TEXT: Final = """#line 1 "{source}"
#include "{source}"
extern int kerneljudge_end_of_header;
"""
"""The text that is precompiled. Messages about included text name torch's header, as ever. The last line starts the
plugin's work, and declares a name that has no definition and no use.
"""

PLUGIN_TEXT: Final = r"""
#include "gcc-plugin.h"
#include "plugin-version.h"
#include "tree.h"
#include "cp/cp-tree.h"

int plugin_is_GPL_compatible;

static void on_declaration(void* event, void*) {
  tree declaration = static_cast<tree>(event);
  if (VAR_P(declaration) && DECL_NAME(declaration)
      && !strcmp(IDENTIFIER_POINTER(DECL_NAME(declaration)), "kerneljudge_end_of_header")) {
    instantiate_pending_templates(0);
    inform(DECL_SOURCE_LOCATION(declaration), "all templates are instantiated");
  }
}

int plugin_init(plugin_name_args* plugin, plugin_gcc_version* version) {
  if (!plugin_default_version_check(version, &gcc_version)) return 1;
  register_callback(plugin->base_name, PLUGIN_FINISH_DECL, on_declaration, nullptr);
  return 0;
}
"""
_DONE: Final = "all templates are instantiated"
_ASKING_S: Final = 20.0


class Plugin:
    """The plugin, compiled into ``folder`` for the compiler in ``environment``. Raises ``PreparationFailed``."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        headers = plugin_headers(environment)
        if headers is None:
            raise PreparationFailed("the compiler's headers for plugins are missing")
        source, self._library = folder / "plugin.cc", folder / "plugin.so"
        source.write_text(PLUGIN_TEXT)
        # GCC itself is compiled without run-time type information, and a plugin has to be as well.
        flags = ["-std=c++17", "-O1", "-fno-rtti", "-fPIC", "-shared", "-w", "-I", str(headers)]
        run_tool([_compiler(environment), *flags, str(source), "-o", str(self._library)], environment, folder)

    def precompile(self, command: list[str], source: Path, header: Path, environment: Mapping[str, str]) -> None:
        """Have ``command`` precompile the header ``source`` to ``header``. Raises ``PreparationFailed``."""
        with tempfile.NamedTemporaryFile("w", suffix=".h", dir=self._folder) as whole:
            whole.write(WHOLE_TEXT.format(source=source))
            whole.flush()
            compiling = [*command, f"-fplugin={self._library}", "-x", "c++-header", whole.name, "-o", str(header)]
            said = run_tool(compiling, environment, header.parent).stderr
        if _DONE not in said:
            raise PreparationFailed("the compiler has not instantiated the templates of the precompiled header")


def plugin_headers(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the compiler's headers for plugins, where they are installed; else ``None``."""
    command = [_compiler(environment), "-print-file-name=plugin"]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=_ASKING_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    folder = Path(done.stdout.strip()) / "include"
    return folder if (folder / "gcc-plugin.h").is_file() and (folder / "cp" / "cp-tree.h").is_file() else None


def _compiler(environment: Mapping[str, str]) -> str:
    return environment.get("CXX", "c++")
