"""The core of the tests, which ``make test`` runs. The rest is marked ``slow``.

The core of the corpus covers each verdict, problem, class of attack and defence once. Of the other tests, those are
slow that take long and whose subject a quicker test has as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.corpus import Case, load_cases
from tests.redteam.mutations import MUTATIONS

__all__ = ["core_cases", "demands_of", "is_slow"]

_CORPUS = tuple(f"tests/evaluator/test_corpus{part}.py" for part in ("", "_honest", "_wrong"))
_SLOW = (
    "tests/api/test_batches.py::test_a_line_that_is_no_submission_is_named_and_sinks_no_other",
    "tests/api/test_large_batches.py",
    "tests/api/test_openapi.py",
    "tests/api/test_pages_boards.py::test_a_page_costs_as_many_queries_however_much_is_on_it",
    "tests/api/test_private.py::test_nothing_private_is_told_to_others",
    "tests/api/test_readiness.py::test_a_broker_that_hangs_keeps_nobody",
    "tests/api/test_readiness.py::test_a_database_that_stops_answering_keeps_no_answer_about_it",
    "tests/api/test_server.py",
    "tests/api/test_submissions.py::test_a_bad_value_is_refused_and_its_field_named",
    "tests/api/test_submissions.py::test_lone_surrogates_are_no_fault",
    "tests/api/test_submissions.py::test_what_does_not_exist_is_not_found",
    "tests/api/test_waiting.py",
    "tests/browser/",
    "tests/evaluator/builder/recipes/test_recipes.py",
    "tests/evaluator/builder/recipes/test_split.py",
    "tests/evaluator/diagnosis/test_diagnosis.py",
    "tests/evaluator/feedback/test_long_texts.py",
    "tests/evaluator/judge/correctness/evidence/test_mismatch.py::test_any_tail_is_found_wherever_slices_are_cut",
    "tests/evaluator/judge/correctness/evidence/test_mismatch.py::test_what_is_wrong_with_the_values_is_seen",
    "tests/evaluator/judge/correctness/test_slices.py::test_every_kind_of_argument_and_output_is_judged_in_slices[y",
    "tests/evaluator/judge/correctness/test_spot_checks.py::test_rows_left_out_once_calls_are_timed_are_found",
    "tests/evaluator/judge/inputs/test_shapes_of_problems.py::test_every_form_of_problem_tells_right_from_wrong",
    "tests/evaluator/judge/test_evaluated_together.py",
    "tests/evaluator/judge/test_memory_check_process.py::test_a_reference_that_ends_the_planner_is_at_fault_alone",
    "tests/evaluator/judge/test_memory_check_process.py::test_tensors_and_what_is_kept_beside_them_are_counted",
    "tests/evaluator/judge/test_memory_plan.py::test_the_plan_is_an_upper_bound_and_close_to_it[a ",
    "tests/evaluator/judge/test_pooled_outputs.py::test_candidates_are_judged_in_slices",
    "tests/evaluator/judge/timing/test_timing_rules.py",
    "tests/evaluator/problems/test_importing.py",
    "tests/evaluator/problems/test_vetting.py::test_checks_are_kept_with_verdicts_and_reported_as_they_are_made",
    "tests/evaluator/problems/test_vetting.py::test_what_is_odd_about_a_problem_is_found",
    "tests/evaluator/processes/test_compile_cache.py",
    "tests/evaluator/results/test_compiled_baselines.py",
    "tests/evaluator/sandbox/test_priority.py",
    "tests/evaluator/sandbox/test_sandbox.py::test_a_candidate_cannot_change_what_the_cache_holds",
    "tests/evaluator/sandbox/test_sandbox.py::test_a_flood_of_output_is_cut_and_harms_nobody",
    "tests/evaluator/sandbox/test_sandbox.py::test_a_sandbox_that_is_required_and_incomplete_is_an_error",
    "tests/evaluator/sandbox/test_sandbox.py::test_no_candidate_may_have_as_many_descriptors_as_we",
    "tests/evaluator/sandbox/test_sandbox.py::test_nothing_is_told_of_whom_the_kernel_has_not_ended_yet",
    "tests/evaluator/sandbox/test_sandbox.py::test_nothing_that_was_asked_of_the_kernel_goes_on_while_processes_are_stopped",
    "tests/evaluator/sandbox/test_sandbox.py::test_processes_and_threads_are_limited_and_end_with_their_runner",
    "tests/evaluator/sandbox/test_sandbox.py::test_processes_that_wake_each_other_stand_still_or_are_found_out",
    "tests/evaluator/sandbox/test_sandbox.py::test_servers_on_this_machine_cannot_be_reached",
    "tests/evaluator/stages/test_shapes.py::test_gradients_that_are_missing_at_a_shape_end_the_training_track",
    "tests/evaluator/stages/test_shapes.py::test_timed_shapes_have_figures_and_samples_and_a_mean_with_the_size",
    "tests/evaluator/stages/test_source_check.py::test_a_problem_whose_rules_its_reference_breaks_can_be_vetted",
    "tests/evaluator/test_engine.py",
    "tests/evaluator/test_selftest.py::test_an_engine_that_is_in_order_passes_again_and_again",
    "tests/kerneljudge_server/test_doctor.py",
    "tests/kerneljudge_server/test_import_problems.py",
    "tests/kerneljudge_server/test_local_commands.py",
    "tests/kerneljudge_server/test_vetting.py",
    "tests/kerneljudge/grading/test_grade.py",
    "tests/kerneljudge/grading/test_references.py::test_references_are_judged_on_this_machine_too",
    "tests/kerneljudge_server/test_vetting_by_itself.py",
    "tests/kerneljudge/test_async_client.py",
    "tests/kerneljudge/test_examples.py",
    "tests/kerneljudge/test_mcp_server.py",
    "tests/integrations/",
    "tests/kerneljudge/rewards/test_environments.py",
    "tests/kerneljudge/rewards/test_group.py::test_no_fault_of_the_service_holds_a_call_up",
    "tests/kerneljudge/rewards/test_kernel_rewards.py::test_256_are_awaited_at_once",
    "tests/kerneljudge/rewards/test_kernel_rewards.py::test_a_group_that_takes_too_long_keeps_the_verdicts_that_came",
    "tests/redteam/test_mutations.py::test_without_this_defence_its_attack_gets_through",
    "tests/redteam/test_timed_mutations.py",
    "tests/serve/",
    "tests/storage/grading/test_claims.py::test_of_many_processes_exactly_one_claims",
    "tests/storage/test_database.py::test_a_server_that_starts_meanwhile_is_waited_for",
    "tests/storage/test_database.py::test_no_process_shows_a_traceback_of_a_database_that_is_none",
    "tests/storage/test_postgresql.py::test_a_server_that_comes_back_is_used_again",
    "tests/storage/test_postgresql.py::test_who_connects_to_a_silent_server_fails_in_seconds_and_then_at_once",
    "tests/storage/queue/test_fair_order.py::test_who_is_far_from_his_turn_does_not_go_before_it",
    "tests/test_benchmarks.py::test_each_checkout_is_measured_by_its_own_packages",
    "tests/test_containers.py",
    "tests/test_distributions.py",
    "tests/test_imports.py::test_nothing_outside_the_evaluators_processes_loads_torch",
    "tests/test_working_folder.py",
    "tests/worker/test_diagnosing.py::test_what_the_tool_says_in_the_sandbox_is_stored_with_the_candidates_line",
    "tests/worker/test_per_device.py",
    "tests/worker/test_process.py",
    "tests/worker/test_together.py",
    "tests/worker/test_tracing.py",
    "tests/worker/test_webhook_sender.py",
)
"""Files, folders and tests that take long: services and whole builds, attacks without their defence, chaos."""
_IN_THE_CORE = (
    "tests/evaluator/problems/test_vetting.py::test_what_is_odd_about_a_problem_is_found[sign]",
    "tests/evaluator/problems/test_vetting.py::test_what_is_odd_about_a_problem_is_found[an average over calls]",
    "tests/evaluator/test_engine.py::test_a_process_of_ours_that_dies_during_an_evaluation_is_a_fault_and_is_replaced[judge",
    "tests/evaluator/test_engine.py::test_cancelling_ends_a_running_evaluation_soon",
    "tests/evaluator/test_engine.py::test_one_that_was_killed_while_it_waited_is_replaced[candidate",
    "tests/kerneljudge_server/test_local_commands.py::test_a_good_candidate_is_status_0_with_its_figures",
    "tests/kerneljudge_server/test_local_commands.py::test_a_wrong_candidate_is_status_1_and_told_where",
    "tests/serve/test_serve.py::test_a_port_in_use_is_said_to_be",
    "tests/worker/test_process.py::test_submissions_go_all_the_way_and_stopped_workers_leave_nothing[folder",
)
"""The tests of slow files that the core has, so that each part of the service is in it."""
_PROBLEMS = frozenset(
    path.parent.name for path in (Path(__file__).parent.parent / "reference_models").glob("*/problem.toml")
)
_ON_BOTH_DATABASES = ("tests/storage/grading/test_claims.py", "tests/storage/test_database.py")
"""Tests of locks and migrations, in which the databases differ. The core has the others on SQLite alone."""


@cache
def core_cases() -> frozenset[str]:
    """The names of the corpus's cases in the core: the attack of each defence first, then those that add the most."""
    cases = {case.name: case for case in load_cases() if case.runs_on("cpu")}
    demands = {name: demands_of(case) for name, case in cases.items()}
    chosen = {mutation.case for mutation in MUTATIONS} & cases.keys()
    missing = set().union(*demands.values()) - set().union(*(demands[name] for name in chosen))
    extensions = {name for name in cases if "cpp_extension" in cases[name].source}
    # Building an extension takes a minute or two, by its length: extensions come last, and the shortest first.
    for names in (sorted(cases.keys() - extensions), sorted(extensions, key=lambda name: len(cases[name].source))):
        while met := missing & demands[best := max(names, key=lambda name: len(missing & demands[name]))]:
            chosen.add(best)
            missing -= met
    return frozenset(chosen)


def demands_of(case: Case) -> frozenset[str]:
    """The demands on the core that a case meets, in words."""
    return frozenset(_demands(case))


def _demands(case: Case) -> Iterator[str]:
    yield from (f"defence: {mutation.name}" for mutation in MUTATIONS if mutation.case == case.name)
    if case.attack is not None:
        yield f"attack: {case.attack}"
    if len(case.verdicts) == 1:
        yield f"verdict: {case.verdict}"
    if case.kind == "honest" and case.problem in _PROBLEMS:
        yield f"problem: {case.problem}"
    if case.gradients is not None:
        yield f"gradients: {case.gradients}"


def is_slow(nodeid: str) -> bool:
    """Whether the core leaves this test out."""
    path, _, test = nodeid.partition("::")
    parameters = test.partition("[")[2].removesuffix("]")
    if path in _CORPUS:
        return parameters not in core_cases()
    if nodeid.startswith(_SLOW):
        return not nodeid.startswith(_IN_THE_CORE)
    return "postgresql" in parameters.split("-") and not nodeid.startswith(_ON_BOTH_DATABASES)
