"""From what judge, builder and kernel report to one evaluation, in words where words are needed."""
