//! The run record and what belongs to it, on every store and layer.

use backtrail_tests::suite::child;
use backtrail_tests::suite::runs::{delete, disk, events, moves, parts, record, resolve, writers};
use backtrail_tests::suite::sites::{each, local, on};

fn alone<F: Future<Output = ()>>(case: F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    runtime.expect("a runtime").block_on(case);
}

/// What a child process runs; nothing when this is none.
#[test]
fn child_entry() {
    child::entry();
}

#[test]
fn run_rs01_created_is_loaded() {
    each(record::rs01_created_is_loaded);
}

#[test]
fn run_rs02_an_id_is_used_once() {
    each(record::rs02_an_id_is_used_once);
}

#[test]
fn run_rs03_statuses_set_and_clear() {
    each(record::rs03_statuses_set_and_clear);
}

#[test]
fn run_rs04_outcomes_are_counted() {
    each(record::rs04_outcomes_are_counted);
}

#[test]
fn run_rs05_wrong_expectation_moves_nothing() {
    each(record::rs05_wrong_expectation_moves_nothing);
}

#[test]
fn run_rs06_exactly_the_moves_of_the_table() {
    moves::rs06_exactly_the_moves_of_the_table();
}

#[test]
fn run_rs07_stale_copies_lose_nothing() {
    each(writers::rs07_stale_copies_lose_nothing);
}

#[test]
fn run_rs08_unknown_fields_survive() {
    each(record::rs08_unknown_fields_survive);
}

#[test]
fn run_rs09_codes_come_and_go() {
    each(record::rs09_codes_come_and_go);
}

#[test]
fn run_rs10_the_pointer_goes_with_its_status() {
    each(moves::rs10_the_pointer_goes_with_its_status);
}

#[test]
fn run_rs11_a_requested_cancel_wins() {
    each(moves::rs11_a_requested_cancel_wins);
}

#[test]
fn run_wf17_automation_leaves_what_a_person_must_decide() {
    each(moves::wf17_automation_leaves_what_a_person_must_decide);
}

#[test]
fn run_rs12_a_newer_record_is_only_shown() {
    each(record::rs12_a_newer_record_is_only_shown);
}

#[test]
fn run_rs14_lost_answers_are_settled() {
    each(writers::rs14_lost_answers_are_settled);
}

#[test]
fn run_rs15_bad_ids_are_refused() {
    each(record::rs15_bad_ids_are_refused);
}

#[test]
fn run_rs16_leftovers_are_no_runs() {
    each(record::rs16_leftovers_are_no_runs);
}

#[test]
fn run_rs17_unreadable_records_are_rows() {
    each(record::rs17_unreadable_records_are_rows);
}

#[test]
fn run_ev01_numbers_rise_for_everybody() {
    each(events::ev01_numbers_from_everybody);
    on(local(), events::ev01_numbers_from_processes);
}

#[test]
fn run_ev02_numbers_go_on() {
    each(events::ev02_numbers_go_on);
}

#[test]
fn run_ev03_torn_short_and_unsynced() {
    on(local(), events::ev03_torn_tails);
    alone(events::ev03_short_writes());
    on(local(), events::ev03_failed_syncs);
}

#[test]
fn run_ev04_corrupt_lines() {
    each(events::ev04_corrupt_lines);
}

#[test]
fn run_ev05_unknown_events_are_kept() {
    each(events::ev05_unknown_events_are_kept);
}

#[test]
fn run_ev06_followers_end_with_the_run() {
    each(events::ev06_followers_end_with_the_run);
}

#[test]
fn run_ev08_no_events() {
    each(events::ev08_no_events);
}

#[test]
fn run_rs13_kills_and_full_disks() {
    on(local(), disk::rs13_kills_leave_old_or_new);
    alone(disk::rs13_full_disk());
}

#[test]
fn run_rs18_modes_and_links() {
    on(local(), disk::rs18_modes_and_links);
}

#[test]
fn run_rs19_three_file_systems() {
    alone(disk::rs19_three_file_systems());
}

#[test]
fn run_ar01_versions_are_never_overwritten() {
    each(parts::ar01_versions_are_never_overwritten);
}

#[test]
fn run_in01_the_first_answer_wins() {
    each(parts::in01_the_first_answer_wins);
}

#[test]
fn run_lg01_logs_by_offset() {
    each(parts::lg01_logs_by_offset);
}

#[test]
fn run_lg02_the_limit_is_told_once() {
    each(parts::lg02_the_limit_is_told_once);
}

#[test]
fn run_dl01_deleted_is_gone() {
    each(delete::dl01_deleted_is_gone);
}

#[test]
fn run_dl02_refused_and_finished() {
    each(delete::dl02_what_is_not_over_stays);
    on(local(), delete::dl02_kills_are_finished);
    alone(delete::dl02_what_only_it_used_is_freed());
}

#[test]
fn runs_are_pruned_by_plan() {
    each(delete::prune_plans_and_applies);
}

#[test]
fn run_cl02_which_run_a_text_means() {
    each(resolve::cl02_which_run_a_text_means);
}
