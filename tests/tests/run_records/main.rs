//! The run record and what belongs to it, on every store and layer.

use backtrail_tests::suite::runs::{moves, record, writers};
use backtrail_tests::suite::sites::each;

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
