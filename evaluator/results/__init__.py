"""From the reports of judge, builder and kernel to one evaluation, in words where words are needed."""
