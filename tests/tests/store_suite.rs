//! The store suite on every store and layer: one test per promise of the contract.

use backtrail_core::store::layers::fault::Fault;
use backtrail_tests::suite::sites::{each, local, on};
use backtrail_tests::suite::{
    child, documents, hostile, limits, locks, logs, objects, races, reopen, settle, stories,
};

fn alone<F: Future<Output = ()>>(case: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(case);
}

/// What a child process runs; nothing when this is none.
#[test]
fn child_entry() {
    child::entry();
}

#[test]
fn cld_o1_reports_per_item() {
    each(objects::o1_reports_per_item);
    alone(settle::items_are_retried_alone());
}

#[test]
fn cld_o2_many_writers_one_copy() {
    each(objects::o2_many_writers_one_copy);
}

#[test]
fn cld_o3_a_kill_leaves_no_half_object() {
    each(reopen::o3_a_kill_leaves_no_half_object);
}

#[test]
fn cld_o4_wrong_is_healed() {
    each(objects::o4_wrong_is_healed);
}

#[test]
fn cld_o5_flush_is_the_barrier() {
    each(objects::o5_flush_is_the_barrier);
    on(local(), reopen::o5_flushed_outlives_its_writer);
}

#[test]
fn cld_o6_exact_bytes() {
    each(objects::o6_exact_bytes);
}

#[test]
fn cld_o7_contains_is_never_wrong() {
    each(objects::o7_contains_is_never_wrong);
}

#[test]
fn cld_o8_listing_is_whole() {
    each(objects::o8_listing_is_whole);
    alone(settle::listings_are_whole_or_fail());
}

#[test]
fn cld_o9_ages_by_the_stores_clock() {
    each(objects::o9_ages_by_the_stores_clock);
}

#[test]
fn cld_o10_delete_reports_per_item() {
    each(objects::o10_delete_reports_per_item);
}

#[test]
fn cld_o11_stored_form_is_invisible() {
    each(objects::o11_stored_form_is_invisible);
}

#[test]
fn cld_d1_byte_for_byte() {
    each(documents::d1_byte_for_byte);
}

#[test]
fn cld_d2_one_creator_wins() {
    each(documents::d2_one_creator_wins);
}

#[test]
fn cld_d3_versions_never_return() {
    each(documents::d3_versions_never_return);
    each(races::a_counter_counts);
}

#[test]
fn cld_d4_last_writer_wins() {
    each(documents::d4_last_writer_wins);
}

#[test]
fn cld_d5_ok_is_seen_by_all() {
    each(documents::d5_ok_is_seen_by_all);
    on(local(), reopen::d5_a_kill_leaves_old_or_new);
    alone(settle::giving_up_is_told());
}

#[test]
fn cld_d6_listings_are_sorted_and_whole() {
    each(documents::d6_listings_are_sorted_and_whole);
}

#[test]
fn cld_d7_prefixes_are_apart() {
    each(documents::d7_prefixes_are_apart);
}

#[test]
fn cld_d8_delete_may_be_conditional() {
    each(documents::d8_delete_may_be_conditional);
}

#[test]
fn cld_d9_old_tokens_are_fenced_out() {
    each(documents::d9_old_tokens_are_fenced_out);
}

#[test]
fn cld_d10_deleted_runs_stay_deleted() {
    each(documents::d10_deleted_runs_stay_deleted);
}

#[test]
fn cld_l1_numbers_rise() {
    each(logs::l1_numbers_rise);
}

#[test]
fn cld_l2_batches_in_order() {
    each(logs::l2_batches_in_order);
}

#[test]
fn cld_l3_unknown_fields_are_kept() {
    each(logs::l3_unknown_fields_are_kept);
}

#[test]
fn cld_l4_log_by_offset() {
    each(logs::l4_log_by_offset);
}

#[test]
fn cld_l5_holes_are_shown() {
    each(logs::l5_holes_are_shown);
}

#[test]
fn cld_l6_followers_miss_nothing() {
    each(logs::l6_followers_miss_nothing);
}

#[test]
fn cld_l7_old_tokens_append_nothing() {
    each(logs::l7_old_tokens_append_nothing);
}

#[test]
fn cld_g1_exclusive_and_shared() {
    each(locks::g1_exclusive_and_shared);
}

#[test]
fn cld_g2_tokens_rise() {
    each(locks::g2_tokens_rise);
}

#[test]
fn cld_g3_release_is_conditional() {
    each(locks::g3_release_is_conditional);
}

#[test]
fn cld_g4_dead_holders_are_gone() {
    each(locks::g4_dead_holders_are_gone);
    on(local(), reopen::g4_a_killed_holder_is_gone);
}

#[test]
fn cld_g5_clocks_are_not_compared() {
    each(locks::g5_clocks_are_not_compared);
}

#[test]
fn cld_g6_lost_holds_say_so() {
    each(locks::g6_lost_holds_say_so);
}

#[test]
fn cld_g7_busy_names_the_holder() {
    each(locks::g7_busy_names_the_holder);
}

#[test]
fn holders_are_seen_without_a_trace() {
    each(locks::holders_are_seen_without_a_trace);
}

#[test]
fn cld_g8_never_two_inside() {
    each(locks::g8_never_two_inside);
}

#[test]
fn cld_g9_guards_name_their_refs() {
    each(locks::g9_guards_name_their_refs);
}

#[test]
fn cld_st2_events_and_artifacts() {
    each(stories::st2_events_and_artifacts);
}

#[test]
fn cld_st1_a_run_and_its_children() {
    each(stories::st1_a_run_and_its_children);
}

#[test]
fn cld_st3_appends_and_reads_cut_across() {
    each(stories::st3_appends_and_reads_cut_across);
}

#[test]
fn cld_st6_a_long_listing() {
    each(stories::st6_a_long_listing);
}

#[test]
fn cld_st8_never_two_inside_for_long() {
    each(stories::st8_never_two_inside_for_long);
}

#[test]
fn cld_st5_content_returns_its_version_does_not() {
    each(stories::st5_content_returns_its_version_does_not);
}

#[test]
fn cld_st9_exclusive_is_not_starved() {
    each(stories::st9_exclusive_is_not_starved);
}

#[test]
fn cld_st7_at_the_limit_and_above() {
    each(limits::at_the_limit_and_above);
}

#[test]
fn cld_st12_a_lost_answer_is_settled() {
    for fault in [Fault::Before, Fault::After, Fault::AfterConflict] {
        eprintln!("under {fault:?}");
        alone(settle::writes_happen_once(fault));
    }
    for seed in 1..20 {
        alone(settle::random_faults(seed));
    }
}

#[test]
fn everything_again_in_another_process() {
    each(reopen::another_process_reads_it);
}

#[test]
fn hostile_names_and_documents() {
    hostile::names_are_refused_at_birth();
    each(hostile::odd_ids_are_plain_names);
    each(hostile::documents_of_others_are_corrupt);
}
