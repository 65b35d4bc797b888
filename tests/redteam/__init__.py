"""The attacks of the corpus against the whole evaluator, and against evaluators with a defence taken out."""
