"""Defences taken out one at a time, each with an attack that must get through then.

A mutation changes a copy of ``evaluator``; nothing in the evaluator itself can be switched off.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTATIONS", "Change", "Mutation"]

Change = tuple[str, str, str]
"""A file of the evaluator, a text that it has once, and what becomes of that."""


@dataclass(frozen=True)
class Mutation:
    """What takes a defence out; ``case`` is what the defence stops.

    Where two mechanisms stop the same attack, both are taken out. What three or more stop is not here. ``timed``: the
    attack is told by its figures, which a busy machine leaves unsettled.
    """

    name: str
    case: str
    changes: tuple[Change, ...]
    timed: bool = False


MUTATIONS = (
    Mutation(
        "inputs are only ever as the problem writes them",
        "relu_identity",
        (
            (
                "judge/inputs/drawing.py",
                "        self._variants = variants\n",
                "        self._variants = False\n",
            ),
        ),
    ),
    Mutation(
        "inputs are the same in every call",
        "attack_b_shape_cache",
        (
            (
                "judge/timing/timed_call.py",
                "drawing = _Drawing(variant, secrets.randbits(63),",
                "drawing = _Drawing(Variant.MIXED, 7,",
            ),
            # Else what a short call follows is another call's, and an answer kept from that is wrong.
            (
                "judge/timing/timed_call.py",
                "made = self._other(drawing)",
                "made = self._make(drawing)",
            ),
        ),
    ),
    Mutation(
        "shapes are not judged",
        "wrong_row_scale_vectors_of_four",
        (
            (
                "stages/shapes.py",
                "if not shapes or not evaluation.passed or config.given_inputs_only:",
                "if True:",
            ),
        ),
    ),
    Mutation(
        "elements of a result may share memory",
        "attack_a_spread_expanded_view",
        (("judge/runner_memory.py", "if shares_elements(spec.shape, strides):", "if False:"),),
    ),
    Mutation(
        "nobody looks how results are mapped",
        "attack_a_heads_on_shared_pages",
        (("judge/timing/timed_call.py", "if secrets.randbelow(_MAPPINGS_OF) == 0:", "if False:"),),
    ),
    Mutation(
        "an exact run has the epsilon of float64",
        "wrong_surprisal_of_nothing",
        (("judge/correctness/reference.py", "if self._asks_limits else", "if False else"),),
    ),
    Mutation(
        "what get_inputs seeds is seeded as it says",
        "attack_b_seeded_inputs",
        (
            ("judge/inputs/seeding.py", "            setattr(owner, name, stand_in)\n", "            pass\n"),
            ("judge/inputs/drawing.py", "if self._draws_to_compare:", "if False:"),
        ),
    ),
    Mutation(
        "nothing is planted in mixed inputs",
        "attack_e_softmax_probed",
        (("judge/inputs/planting.py", "if not self.strength or tensor.numel() < _SHARE:", "if True:"),),
    ),
    Mutation(
        "a share of a sum may be left out",
        "attack_e_mean_of_a_share_bfloat16",
        (
            ("judge/inputs/planting.py", "if fan_in < _MIN_FAN_IN:", "if True:"),
            ("judge/inputs/planting.py", "if self.rows or stream.random() < 0.5:", "if self.rows:"),
            ("judge/inputs/planting.py", "if not gradients and self.is_still(seed)", "if False"),
            ("judge/candidate_session.py", "    Variant.SPECIAL,\n", ""),
        ),
    ),
    Mutation(
        "nothing is still",
        "attack_e_mean_clipped_of_a_share",
        (("judge/inputs/planting.py", "if not gradients and self.is_still(seed)", "if False"),),
    ),
    Mutation(
        "no row has levels",
        "attack_e_mean_gate_of_a_share",
        (("judge/inputs/planting.py", "if not self.rows or size < _MIN_FAN_IN:", "if True:"),),
    ),
    Mutation(
        "masks are only ever as the problem writes them",
        "attack_e_neighbours_known",
        (("judge/candidate_session.py", "        self.source.vary_masks(masks)\n", ""),),
    ),
    Mutation(
        "no gradient call has exact zeros",
        "wrong_row_norms_of_zero",
        (
            (
                "judge/candidate_session.py",
                "signature.takes_largest):\n            variants.append(Variant.ZEROS)\n",
                "signature.takes_largest):\n            pass\n",
            ),
        ),
    ),
    Mutation(
        "exact zeros come with a gradient alone",
        "wrong_zero_rows_without_gradient",
        (
            (
                "judge/candidate_session.py",
                "signature.chooses:\n            variants.append(Variant.ZEROS)\n",
                "signature.chooses:\n            pass\n",
            ),
        ),
    ),
    Mutation(
        "what scores are filled up with is their scale",
        "wrong_scores_without_scale",
        (
            (
                "judge/correctness/limits.py",
                "    return torch.where(is_fill, largest, 0.0)\n",
                "    return torch.zeros_like(largest)\n",
            ),
        ),
    ),
    Mutation(
        "something may flow back where nothing does",
        "wrong_gradient_of_detached",
        (
            (
                "judge/correctness/verify.py",
                "if report.present >> (1 + index) & 1:  # where nothing",
                "if False:  # where nothing",
            ),
        ),
    ),
    Mutation(
        "a gradient that is nothing but rounding must be there",
        "honest_bias_before_norm_left_out",
        (("judge/correctness/verify.py", "(is_there or not is_rounding(right, (native() - right).abs_()))", "True"),),
    ),
    Mutation(
        "factors near zero are moved by shares of themselves",
        "attack_d_layer_scale_left_out",
        (("judge/inputs/parameters.py", "torch.where(exact.abs() < _SMALL,", "torch.where(exact == 0,"),),
    ),
    Mutation(
        "scales keep their sign",
        "attack_d_pool_before_norm",
        (("judge/inputs/parameters.py", "    if share == 1.0 and not side:\n", "    if False:\n"),),
    ),
    Mutation(
        "parts of a model load as torch does",
        "honest_norm_loads_by_module",
        (("runner/weights.py", "        for module in model.modules()\n", "        for module in [model]\n"),),
    ),
    Mutation(
        "equal values are always each other's",
        "honest_norms_in_another_order",
        (
            (
                "judge/candidate_session.py",
                "self._verifier.ambiguous_weights = ambiguous_weights(variation.initial, unnamed)",
                "ambiguous_weights(variation.initial, unnamed)",
            ),
        ),
    ),
    Mutation(
        "upstream gradients have a mean of zero",
        "attack_d_long_layer_norm_without_mean",
        (("judge/inputs/drawing.py", "                if sign is not None:\n", "                if False:\n"),),
    ),
    Mutation(
        "what is small beside the largest counts as cancelled",
        "attack_f_zeros_beside_large_powers",
        (
            ("judge/correctness/limits.py", "    nothing &= native_error >= magnitude * tolerance.rtol\n", ""),
            (
                "judge/correctness/limits.py",
                "    return torch.where(is_fill, largest, 0.0)\n",
                "    return torch.zeros_like(largest)\n",
            ),
        ),
    ),
    Mutation(
        "a whole column counts as lost, up to the root mean square of all",
        "attack_d_a_column_left_out",
        (
            (
                "judge/correctness/limits.py",
                "around = _root_mean_square_around(expected).clamp_(",
                "around = torch.clamp(magnitude, ",
            ),
            (
                "judge/correctness/limits.py",
                "min=usual.scale, max=usual.root_mean_square)",
                "min=usual.root_mean_square)",
            ),
            ("judge/correctness/limits.py", "kept = kept & ~(far &", "kept = kept | (far &"),
            (
                "judge/correctness/limits.py",
                "    return torch.where(is_fill, largest, 0.0)\n",
                "    return torch.zeros_like(largest)\n",
            ),
        ),
    ),
    Mutation(
        "any integer between two hashes is right",
        "attack_d_buckets_between",
        (
            ("judge/correctness/steps.py", "step.chooses or step.mixes for", "step.chooses for"),
            (
                "judge/candidate_session.py",
                "signature.chooses:\n            variants.append(Variant.ZEROS)\n",
                "signature.chooses:\n            pass\n",
            ),
        ),
    ),
    Mutation(
        "NaN counts as right",
        "attack_g_one_nan",
        (("judge/correctness/compare.py", "return error <= limit\n", "return ~(error > limit)\n"),),
    ),
    Mutation(
        "the tolerance is a hundred times as wide",
        "attack_f_rounded_answer",
        (
            (
                "judge/correctness/limits.py",
                "return ElementLimits(limit, scale, mean)",
                "return ElementLimits(100 * limit, scale, mean)",
            ),
        ),
    ),
    Mutation(
        "any class is right where the reference is not finite",
        "wrong_log_of_magnitudes",
        (("judge/correctness/nonfinite.py", "mismatched if bool(mismatched.any()) else None,", "None,"),),
    ),
    Mutation(
        "one element that is not finite silences its tensor",
        "attack_e_nothing_beside_overflow",
        (
            (
                "judge/correctness/nonfinite.py",
                "finite & native_finite & ~beyond\n",
                "finite & (native_finite & ~beyond).all()\n",
            ),
            ("judge/correctness/nonfinite.py", "mismatched if bool(mismatched.any()) else None,", "None,"),
        ),
    ),
    Mutation(
        "one bad row of the reference's own excuses all others",
        "wrong_half_beside_inexact_row",
        (
            (
                "judge/correctness/limits.py",
                "_joined(torch.maximum(typical, native_error * NATIVE_FACTOR, out=typical), limits.limit, tolerance)",
                "limits.limit * (1 + NATIVE_FACTOR * float((native_error / limits.limit).max()))",
            ),
        ),
    ),
    Mutation(
        "the scale is that of the largest elements",
        "attack_d_exponentials_below_mean",
        (
            (
                "judge/correctness/limits.py",
                "scale = max(min(mean, float(_typical_of(sample, fill))), _SMALLEST_SCALE)",
                "scale = mean",
            ),
        ),
    ),
    Mutation(
        "a few wrong elements are overlooked",
        "attack_g_one_nan",
        (
            (
                "judge/correctness/compare.py",
                "return self.right + self.undetermined == self.total == math.prod(self.shape)",
                "return self.right >= 0.99 * self.total",
            ),
        ),
    ),
    Mutation(
        "gradients are not compared",
        "attack_d_lying_hook",
        (
            (
                "judge/correctness/verify.py",
                "if tally.total and not tally.passed and tally.name not in excused:",
                "if False:",
            ),
            # Excuses would be looked for in every call, which takes a minute.
            ("judge/correctness/verify.py", "        if found.suspect:", "        if False:"),
        ),
    ),
    Mutation(
        "the runner's clock is believed",
        "attack_a_tenth_of_the_time",
        (
            ("judge/timing/clocks.py", "if excess > overhead_ms:", "if False:"),
            ("judge/timing/clocks.py", "if excess > self.most_overhead_ms:", "if False:"),
            ("judge/timing/clocks.py", "if missing <= unnoticed and doubt <=", "if True or doubt <="),
        ),
        timed=True,
    ),
    Mutation(
        "the upstream gradient is there before the clock starts",
        "attack_a_early_upstream",
        (
            (
                "judge/timing/timed_call.py",
                "                self._write_inputs(warmup)\n",
                "                self._write_inputs(replace(warmup, upstream=given.upstream))\n",
            ),
            # On a busy machine no call is short, and none has another one before it.
            ("judge/timing/timed_call.py", "_SHORT_MS: Final = 1.0\n", "_SHORT_MS: Final = 1000.0\n"),
        ),
    ),
    Mutation(
        "outputs are looked at when they are delivered, and not at done",
        "attack_a_rows_on_delivery",
        (("judge/correctness/commitment.py", "if done is None or not same_bits(done, delivered):", "if False:"),),
    ),
    Mutation(
        "an output that is not there at done may be delivered all the same",
        "attack_a_absent_until_delivery",
        (
            (
                "judge/correctness/commitment.py",
                "if done is None or not same_bits(done, delivered):",
                "if done is not None and not same_bits(done, delivered):",
            ),
        ),
    ),
    Mutation(
        "a runner's word for an address is taken",
        "attack_a_wild_location",
        (
            (
                "judge/correctness/commitment.py",
                'with _named(name, index, "read"):',
                "with contextlib.suppress(Unreadable):",
            ),
            ("judge/correctness/commitment.py", "if done is None or not same_bits(done, delivered):", "if False:"),
        ),
    ),
    Mutation(
        "the network is there",
        "attack_h_network",
        (("sandbox/namespaces.py", "    Layer.NETWORK: 0x40000000,\n", ""),),
    ),
    Mutation(
        "the machine's files are there",
        "attack_h_written_packages",
        (
            (
                "sandbox/filesystem.py",
                "        refused = _build(root, mount_point, own_pids)\n",
                '        raise OSError("no root")\n',
            ),
        ),
    ),
    Mutation(
        "every system call is allowed",
        "attack_h_strict_seccomp",
        (
            (
                "sandbox/syscalls.py",
                "    program = compile_filter()\n",
                "    return True\n    program = compile_filter()\n",
            ),
        ),
    ),
    Mutation(
        "timers can be armed for when a process is stopped",
        "attack_a_armed_timers",
        (("sandbox/syscalls.py", "timer_create timerfd_create umount", "timer_create umount"),),
    ),
    Mutation(
        "files can be watched",
        "attack_a_watched_files",
        (("sandbox/syscalls.py", " inotify_init1", ""),),
    ),
    Mutation(
        "only the first call may compile",
        "relu_honest_slow_first_calls",
        (("judge/candidate_session.py", "_MAY_COMPILE: Final = 2", "_MAY_COMPILE: Final = 1"),),
    ),
    Mutation(
        "the runner shares its reaper's process group",
        "attack_h_kills_its_group",
        (
            (
                "sandbox/forkserver.py",
                "        os.setsid()  # its reaper must not be in its process group: kill(0) knows no namespaces\n",
                "",
            ),
        ),
    ),
    Mutation(
        "a source's word for its own name is taken",
        "attack_h_blames_the_toolkit",
        (("builder/builder.py", "if header is not None and not request.renames_lines:", "if header is not None:"),),
    ),
    Mutation(
        "parameters keep the values that they are constructed with",
        "attack_d_shut_gate",
        (("judge/candidate_session.py", "        if not initial:\n", "        if True:\n"),),
    ),
    Mutation(
        "running statistics keep the values that they are constructed with",
        "attack_d_statistics_left_out",
        (("judge/inputs/parameters.py", 'if name.rpartition(".")[2] in _STATISTICS and', "if False and"),),
    ),
    Mutation(
        "who has no counterpart of a constant parameter is measured all the same",
        "attack_d_affine_absent",
        (("judge/candidate_session.py", "if missing and common.matter(missing):", "if False:"),),
    ),
    Mutation(
        "who is right with constant parameters alone is measured all the same",
        "attack_d_bias_of_zeros_left_out",
        (
            (
                "judge/candidate_session.py",
                '        self.outcome.details["parameters"].setdefault("fixed", []).extend(names)\n',
                "",
            ),
        ),
    ),
    Mutation(
        "parameters that cannot be moved together are not moved",
        "attack_d_norm_beside_a_bound",
        (
            ("judge/inputs/parameters.py", "            groups += [", "            groups += [] and ["),
            ("judge/candidate_session.py", "        if unmoved:\n", "        if False:\n"),
        ),
    ),
    Mutation(
        "what the problem's own inputs do not depend on does not matter",
        "attack_d_slope_of_negatives",
        (
            (
                "judge/candidate_session.py",
                "kinds = [variant for variant in _TRIALS if self.source.available(variant)]",
                "kinds = [Variant.AS_WRITTEN]",
            ),
        ),
    ),
    Mutation(
        "drawn parameters keep the relations that they are constructed in",
        "attack_d_lengths_at_first",
        (
            (
                "judge/correctness/reference.py",
                "                _CONSTANTS[self.problem_key] = constants, related\n",
                "                _CONSTANTS[self.problem_key] = constants, ()\n",
            ),
        ),
    ),
    Mutation(
        "copies that are not trained keep the values of what is",
        "attack_d_start_taken_for_now",
        (
            (
                "judge/inputs/relations.py",
                "    tensors = {**parts.drawn, **parts.beside}\n",
                "    tensors = parts.drawn\n",
            ),
        ),
    ),
    Mutation(
        "the rank that drawn parameters begin with stays",
        "attack_d_rank_at_first",
        (("judge/inputs/relations.py", "        if _is_singular(matrix):\n", "        if False:\n"),),
    ),
    Mutation(
        "loud rows say how large the terms of others may be",
        "attack_f_tf32_beside_loud_rows",
        (
            (
                "judge/correctness/limits.py",
                "    most = _root_mean_square_around(expected).clamp_(max=limits.root_mean_square)\n",
                "    most = expected.new_full((), limits.root_mean_square)\n",
            ),
            (
                "judge/correctness/limits.py",
                "around = _root_mean_square_around(expected).clamp_(min=usual.scale, max=usual.root_mean_square)",
                "around = expected.new_full((), usual.root_mean_square)",
            ),
        ),
    ),
    Mutation(
        "gradients are as far off as inputs move by the whole tolerance",
        "attack_f_backward_of_rounded_inputs",
        (
            (
                "judge/correctness/sensitivity.py",
                "min(rtol, max(_ROUNDINGS * self._reference.epsilon, _OF_RTOL * rtol))",
                "rtol",
            ),
        ),
    ),
    Mutation(
        "numbers that are exact have limits before a step as well",
        "wrong_round_half_up",
        (
            (
                "judge/correctness/steps.py",
                "if not bool(error.any()) and (move is None or self._is_given(exact)):",
                "if False:",
            ),
        ),
    ),
    Mutation(
        "an index may be chosen twice",
        "wrong_top_k_repeated_index",
        (("judge/correctness/steps.py", "        right &= ~twice | (index == chosen)\n", "        right |= twice\n"),),
    ),
    Mutation(
        "whatever is within the bounds counts as well chosen",
        "wrong_argmax_of_the_next",
        (
            (
                "judge/correctness/steps.py",
                "    return (right & inside).reshape(shape)\n",
                "    return inside.reshape(shape)\n",
            ),
        ),
    ),
    Mutation(
        "casts are left out where they are the function",
        "wrong_split_without_low_half",
        (("judge/correctness/reference.py", "_CAST_CHECKS if self._casts else 0", "0"),),
    ),
    Mutation(
        "float64 is as exact as float32",
        "wrong_float64_in_single_precision",
        (("judge/correctness/tolerances.py", "    if dtype is given is torch.float64:\n", "    if False:\n"),),
    ),
    Mutation(
        "results are let go of when they are delivered",
        "attack_a_zeroed_when_let_go",
        (
            (
                "judge/timing/timed_call.py",
                "takes = timed and mode in side.kept",
                "takes = False and mode in side.kept",
            ),
            ("runner/calls.py", "        self._deferred_results.append(self._results)\n", ""),
            # On a noisy machine, doubt would keep these figures from being reported.
            ("judge/timing/clocks.py", "if missing <= unnoticed and doubt <=", "if True or doubt <="),
            ("judge/timing/figures.py", "if sampled.high > most_apart * sampled.low:", "if False:"),
        ),
        timed=True,
    ),
    Mutation(
        "what was returned stays as it is",
        "attack_b_wiped_where_written",
        (
            ("runner/calls.py", "value.fill_(scrub_value(value.dtype))", "pass"),
            ("judge/correctness/commitment.py", "memory.scrub(location, spec)", "pass"),
        ),
    ),
    Mutation(
        "what was taken stays as it is",
        "attack_b_wiped_once_timed",
        (("judge/correctness/commitment.py", "memory.scrub(location, spec)", "pass"),),
        timed=True,
    ),
    Mutation(
        "no weight moves between two calls",
        "attack_d_weight_turned_once",
        (
            (
                "judge/candidate_session.py",
                "        if not names:\n            yield\n            return\n        common,",
                "        if True:\n            yield\n            return\n        common,",
            ),
        ),
    ),
    Mutation(
        "nothing comes between a forward and its backward",
        "wrong_mask_on_module",
        (("runner/calls.py", "        if self._between is not None:\n", "        if False:\n"),),
    ),
)
