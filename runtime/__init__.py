"""The environment of every process of an installation: settings, traces, and the process supervisor."""
