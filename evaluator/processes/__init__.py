"""The processes of an engine: how each is started, seen and ended, and what it gets of this machine."""
