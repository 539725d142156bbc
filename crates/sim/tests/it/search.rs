//! Every order of events of small cases; the larger ones as far as time allows:
//! `soak --search` goes through them all.

use portolan_sim::search::Case;

#[test]
fn no_order_of_events_breaks_a_rule() {
    // What a debug build does in well below a minute.
    let states_max = if cfg!(debug_assertions) {
        12_000
    } else {
        40_000
    };
    for case in Case::ALL {
        let seen = case
            .search(states_max)
            .unwrap_or_else(|e| panic!("{case:?}: {e}"));
        println!("{case:?}: {seen}");
        // A digest that told too few states apart would end early.
        assert!(seen.states >= 3_000, "{case:?}: only {seen}");
        assert!(seen.all || seen.states == states_max, "{case:?}: {seen}");
        assert_eq!(seen.mis_steered > 0, case.detours > 0, "{case:?}");
    }
}
