"""The possible findings about a problem, and those of them that refuse a leaderboard."""

from __future__ import annotations

from typing import Final

from kerneljudge.terms.enumeration import StrEnum

__all__ = ["MEANING", "REFUSALS", "Label"]


class Label(StrEnum):
    """One finding; ``MEANING`` has a line on each.

    ``*_on_given_inputs``: only with the inputs of ``get_inputs``; the judge's own inputs tell the answers apart.
    """

    REFERENCE_FAILS = "reference_fails"
    BACKWARD_FAILS = "backward_fails"
    REFERENCE_DOES_NOT_PASS = "reference_does_not_pass"
    NONDETERMINISTIC = "nondeterministic"
    BACKWARD_NONDETERMINISTIC = "backward_nondeterministic"
    ROUNDING_VARIES = "rounding_varies"
    OUTPUT_DRIFTS = "output_drifts"
    KEEPS_STATE = "keeps_state"
    INPUTS_REPEAT = "inputs_repeat"
    OUTPUT_CONSTANT = "output_constant"
    SILENT_INPUTS = "silent_inputs"
    LIMITS_CAPPED = "limits_capped"
    GRADIENT_LIMITS_CAPPED = "gradient_limits_capped"
    CONSTANT_PARAMETERS_LEFT_OUT = "constant_parameters_left_out"
    CONSTANT_PARAMETERS_UNMOVED = "constant_parameters_unmoved"
    RELATIONS_COUNTED_ON = "relations_counted_on"
    INPUTS_COUNTED_ON = "inputs_counted_on"
    ZEROS_PASS = "zeros_pass"
    ZEROS_PASS_ON_GIVEN_INPUTS = "zeros_pass_on_given_inputs"
    CONSTANT_PASSES = "constant_passes"
    CONSTANT_PASSES_ON_GIVEN_INPUTS = "constant_passes_on_given_inputs"
    IDENTITY_PASSES = "identity_passes"
    IDENTITY_PASSES_ON_GIVEN_INPUTS = "identity_passes_on_given_inputs"
    INPUT_INDEPENDENT = "input_independent"
    INPUT_INDEPENDENT_ON_GIVEN_INPUTS = "input_independent_on_given_inputs"
    SCALED_ANSWER_PASSES = "scaled_answer_passes"
    SCALED_ANSWER_PASSES_ON_GIVEN_INPUTS = "scaled_answer_passes_on_given_inputs"
    NOISE_PASSES = "noise_passes"
    NOISE_PASSES_ON_GIVEN_INPUTS = "noise_passes_on_given_inputs"
    ORDINARY_ELEMENTS_LEFT_OUT = "ordinary_elements_left_out"
    ORDINARY_ELEMENTS_LEFT_OUT_ON_GIVEN_INPUTS = "ordinary_elements_left_out_on_given_inputs"
    FIRST_ANSWER_PASSES = "first_answer_passes"
    FIRST_ANSWER_PASSES_ON_GIVEN_INPUTS = "first_answer_passes_on_given_inputs"
    FIRST_ROW_REPEATED_PASSES = "first_row_repeated_passes"
    FIRST_ROW_REPEATED_PASSES_ON_GIVEN_INPUTS = "first_row_repeated_passes_on_given_inputs"
    TF32_PASSES = "tf32_passes"
    HALF_PASSES = "half_passes"
    NO_GRADIENT = "no_gradient"
    ZERO_GRADIENTS_PASS = "zero_gradients_pass"


MEANING: Final = {
    Label.REFERENCE_FAILS: "the reference cannot be run, or not in float64",
    Label.BACKWARD_FAILS: "the reference runs, but not its backward pass, or not a second time",
    Label.REFERENCE_DOES_NOT_PASS: "the reference, handed in as a candidate, does not pass",
    Label.NONDETERMINISTIC: "two calls on the same input differ by more than the tolerance",
    Label.BACKWARD_NONDETERMINISTIC: "gradients of two calls on the same input differ by more than the tolerance",
    Label.ROUNDING_VARIES: "two calls on the same input differ in their last bits, within the tolerance",
    Label.OUTPUT_DRIFTS: "what later calls on the same input return differs by more than the tolerance",
    Label.KEEPS_STATE: "a call changes parameters or buffers; that is not compared",
    Label.INPUTS_REPEAT: "get_inputs returns the same each time, whatever the seed",
    Label.OUTPUT_CONSTANT: "the output is the same for different inputs",
    Label.SILENT_INPUTS: "on some of the judge's kinds of inputs the reference is not finite: they say nothing",
    Label.LIMITS_CAPPED: "the reference is so inexact at this precision that its error is beyond what limits allow for",
    Label.GRADIENT_LIMITS_CAPPED: "the same of its gradients alone: right ones may be turned down",
    Label.CONSTANT_PARAMETERS_LEFT_OUT: "parameters that are always the same after construction may be left out",
    Label.CONSTANT_PARAMETERS_UNMOVED: "of some parameters that are always the same after construction the reference "
    "takes no other values",
    Label.RELATIONS_COUNTED_ON: "parameters that are always related in the same way after construction may be counted "
    "on to stay so",
    Label.INPUTS_COUNTED_ON: "inputs that are the same in every draw, or always related in the same way, may be "
    "counted on to be so",
    Label.ZEROS_PASS: "zeros pass",
    Label.ZEROS_PASS_ON_GIVEN_INPUTS: "zeros would pass if inputs were only those of get_inputs",
    Label.CONSTANT_PASSES: "one number in every place passes",
    Label.CONSTANT_PASSES_ON_GIVEN_INPUTS: "one number in every place would pass if inputs were only those of "
    "get_inputs",
    Label.IDENTITY_PASSES: "an input, returned as it is, passes",
    Label.IDENTITY_PASSES_ON_GIVEN_INPUTS: "an input, returned as it is, would pass if inputs were only those of "
    "get_inputs",
    Label.INPUT_INDEPENDENT: "the output for other inputs passes: the given ones need not be read",
    Label.INPUT_INDEPENDENT_ON_GIVEN_INPUTS: "the output for other inputs would pass if inputs were only those of "
    "get_inputs",
    Label.SCALED_ANSWER_PASSES: "half of the right answer passes, or half as much again",
    Label.SCALED_ANSWER_PASSES_ON_GIVEN_INPUTS: "half of the right answer, or half as much again, would pass if inputs "
    "were only those of get_inputs",
    Label.NOISE_PASSES: "the right answer with noise of twenty times the stated tolerance passes",
    Label.NOISE_PASSES_ON_GIVEN_INPUTS: "the right answer with noise of twenty times the tolerance would pass if "
    "inputs were only those of get_inputs",
    Label.ORDINARY_ELEMENTS_LEFT_OUT: "zeros in place of the smaller half of the elements pass",
    Label.ORDINARY_ELEMENTS_LEFT_OUT_ON_GIVEN_INPUTS: "zeros in place of the smaller half of the elements would pass "
    "if inputs were only those of get_inputs",
    Label.FIRST_ANSWER_PASSES: "the first output, returned again in every later call, passes",
    Label.FIRST_ANSWER_PASSES_ON_GIVEN_INPUTS: "the first output, returned again in every later call, would pass if "
    "inputs were only those of get_inputs",
    Label.FIRST_ROW_REPEATED_PASSES: "the first row of the output, repeated, passes",
    Label.FIRST_ROW_REPEATED_PASSES_ON_GIVEN_INPUTS: "the first row of the output, repeated, would pass if inputs were "
    "only those of get_inputs",
    Label.TF32_PASSES: "TF32 is within the tolerance",
    Label.HALF_PASSES: "float16 or bfloat16 is within the tolerance of float32",
    Label.NO_GRADIENT: "there is nothing to differentiate: no training track",
    Label.ZERO_GRADIENTS_PASS: "the right gradients are zero: training says nothing beyond the forward pass",
}
"""A line on each label."""

REFUSALS: Final = {
    Label.REFERENCE_FAILS: "The reference itself fails, so nothing can be judged.",
    Label.BACKWARD_FAILS: "The backward pass of the reference fails, and the problem asks for gradients.",
    Label.REFERENCE_DOES_NOT_PASS: "The reference does not pass as a candidate, so no honest candidate can.",
    Label.NONDETERMINISTIC: "The reference returns different outputs for the same input, so there is no right one.",
    Label.BACKWARD_NONDETERMINISTIC: "The reference has different gradients for the same input, so there are no right "
    "ones.",
    Label.OUTPUT_DRIFTS: "The reference returns something else for the same input in later calls, so what is right "
    "depends on how often it was called.",
    Label.INPUTS_REPEAT: "The inputs are the same in every call, so that an answer needs no computing after the first.",
    Label.OUTPUT_CONSTANT: "The output is the same for different inputs, so that there is nothing to compute.",
    Label.LIMITS_CAPPED: "The reference is so inexact at this precision that wrong answers cannot be told from right "
    "ones: its own error is beyond what limits allow for.",
    Label.CONSTANT_PARAMETERS_UNMOVED: "Of some parameters that are always the same after construction the reference "
    "takes no other values, so a candidate that leaves them out cannot be told from one that does not.",
    Label.ZEROS_PASS: "A candidate that returns zeros passes, whatever the inputs.",
    Label.CONSTANT_PASSES: "A candidate that returns one number in every place passes, whatever the inputs.",
    Label.IDENTITY_PASSES: "A candidate that returns its input passes, whatever the inputs.",
    Label.INPUT_INDEPENDENT: "A candidate that never reads its inputs passes: the output does not depend on them.",
    Label.SCALED_ANSWER_PASSES: "A candidate that is wrong by half in every element passes, whatever the inputs.",
    Label.NOISE_PASSES: "A candidate with errors of twenty times the stated tolerance passes, whatever the inputs.",
    Label.ORDINARY_ELEMENTS_LEFT_OUT: "A candidate that leaves out the smaller half of the elements passes, whatever "
    "the inputs.",
    Label.FIRST_ANSWER_PASSES: "A candidate that computes its first output only, and repeats it, passes.",
    Label.FIRST_ROW_REPEATED_PASSES: "A candidate that computes one row and repeats it passes, whatever the inputs.",
}
"""For each label that refuses a leaderboard, the sentence that is shown instead of one."""
