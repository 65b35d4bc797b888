"""The processes of an engine: start, supervision and end of each, and its share of this machine."""
