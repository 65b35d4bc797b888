"""The two stages of grading a candidate, over the processes of an engine: its build and its evaluation."""
