use proptest::prelude::*;

use super::*;
// Both globs have one: the ledger's is meant.
use super::Strategy;

fn amounts(cpus: i64, memory_bytes: i64, gpus: i64) -> Resources {
    Resources { cpus, memory_bytes, gpus, nodes: 1 }
}

fn take(ledger: &mut Ledger, need: &Resources) -> Option<Reservation> {
    ledger.reserve(need, NodeScope::AnyNode)
}

fn devices(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("gpu{n}")).collect()
}

#[test]
fn fits_what_is_free() {
    let cases = [
        (amounts(4, 100, 2), true, true),
        (amounts(3, 100, 0), true, false),
        (amounts(2, 60, 0), true, false),
        (amounts(2, 50, 2), true, false),
        (amounts(2, 50, 1), true, true),
        (amounts(5, 1, 0), false, false),
        (amounts(1, 101, 0), false, false),
        (amounts(1, 1, 3), false, false),
        (Resources { nodes: 2, ..amounts(1, 1, 0) }, false, false),
    ];
    for (need, ever, now) in cases {
        let mut ledger = Ledger::new(Strategy::Resources, amounts(4, 100, 2), devices(2));
        let taken = (need != amounts(4, 100, 2)).then(|| take(&mut ledger, &amounts(2, 50, 1)).expect("fits"));
        assert_eq!((ledger.can_ever_fit(&need), take(&mut ledger, &need).is_some()), (ever, now), "{need:?}");
        if let Some(taken) = taken {
            ledger.release(taken);
        }
    }
}

#[test]
fn devices_are_exclusive_and_lowest_first() {
    let mut ledger = Ledger::new(Strategy::Resources, amounts(8, 100, 0), devices(3));
    let first = take(&mut ledger, &amounts(1, 1, 2)).expect("fits");
    let second = take(&mut ledger, &amounts(1, 1, 1)).expect("fits");
    assert_eq!(ledger.device_names(&first), ["gpu0", "gpu1"]);
    assert_eq!(ledger.device_names(&second), ["gpu2"]);
    assert!(take(&mut ledger, &amounts(1, 1, 1)).is_none());
    ledger.release(first);
    let third = take(&mut ledger, &amounts(1, 1, 1)).expect("fits");
    assert_eq!(ledger.device_names(&third), ["gpu0"]);
    ledger.release(second);
    ledger.release(third);
    assert_eq!(ledger.free(), ledger.capacity());
}

#[test]
fn slots_ignore_what_jobs_need() {
    let mut ledger = Ledger::new(Strategy::Slots(2), amounts(1, 1, 0), Vec::new());
    let huge = amounts(1000, i64::MAX, 9);
    let first = take(&mut ledger, &huge).expect("fits");
    let second = take(&mut ledger, &huge).expect("fits");
    assert_eq!(ledger.free_slots(), Some(0));
    assert!(take(&mut ledger, &amounts(0, 0, 0)).is_none());
    ledger.release(first);
    let third = take(&mut ledger, &huge).expect("fits");
    ledger.release(second);
    ledger.release(third);
    assert_eq!(ledger.free_slots(), Some(2));
}

#[test]
fn adopts_more_than_there_is_without_going_negative() {
    let mut ledger = Ledger::new(Strategy::Resources, amounts(2, 10, 0), devices(1));
    let adopted = ledger.adopt(&amounts(4, 20, 2), &["gpu0".to_owned(), "gone".to_owned()], &[0, 7]);
    assert_eq!(ledger.free(), Resources { cpus: 0, memory_bytes: 0, gpus: 0, nodes: 0 });
    assert_eq!(take(&mut ledger, &amounts(1, 1, 0)), None);
    ledger.release(adopted);
    assert_eq!(ledger.free(), ledger.capacity());
}

#[test]
fn a_device_that_is_taken_is_not_adopted_again() {
    let mut ledger = Ledger::new(Strategy::Resources, amounts(8, 80, 0), devices(2));
    let names = ["gpu0".to_owned()];
    let first = ledger.adopt(&amounts(3, 30, 1), &names, &[0]);
    let second = ledger.adopt(&amounts(2, 20, 1), &names, &[0]);
    assert_eq!((ledger.device_names(&first), ledger.device_names(&second)), (vec!["gpu0".to_owned()], vec![]));
    assert_eq!(ledger.free(), Resources { cpus: 3, memory_bytes: 30, gpus: 1, nodes: 0 });
    ledger.release(second);
    ledger.release(first);
    assert_eq!(ledger.free(), ledger.capacity(), "nothing is given back twice");
}

fn three_nodes() -> Ledger {
    Ledger::new(Strategy::Resources, Resources { cpus: 12, memory_bytes: 300, gpus: 6, nodes: 3 }, devices(2))
}

// J39
#[test]
fn jobs_fit_a_node_not_the_sum_of_nodes() {
    let mut ledger = three_nodes();
    assert!(!ledger.can_ever_fit(&amounts(5, 1, 0)), "no node has five CPUs");
    assert!(!ledger.can_ever_fit(&amounts(1, 1, 3)), "no node has three GPUs");
    let held: Vec<Reservation> = (0..3).map(|_| take(&mut ledger, &amounts(3, 1, 1)).expect("fits")).collect();
    assert_eq!(held.iter().map(Reservation::nodes).collect::<Vec<_>>(), [[0], [1], [2]]);
    assert_eq!(ledger.free().cpus, 3);
    assert_eq!(take(&mut ledger, &amounts(2, 1, 0)), None, "three CPUs are free, but on three nodes");
    let device = |reservation: &Reservation| ledger.device_names(reservation);
    assert_eq!(held.iter().map(device).collect::<Vec<_>>(), [["gpu0"], ["gpu0"], ["gpu0"]]);
}

// S03
#[test]
fn a_job_of_several_nodes_owns_them_whole() {
    let mut ledger = three_nodes();
    let small = take(&mut ledger, &amounts(1, 1, 0)).expect("fits");
    let wide = Resources { nodes: 2, ..amounts(1, 1, 0) };
    let both = take(&mut ledger, &wide).expect("two are untouched");
    assert_eq!(both.nodes(), [1, 2]);
    assert_eq!(ledger.free(), Resources { cpus: 3, memory_bytes: 99, gpus: 2, nodes: 0 });
    assert_eq!(take(&mut ledger, &wide), None);
    ledger.release(small);
    assert_eq!(take(&mut ledger, &wide), None, "one untouched node is not two");
    ledger.release(both);
    assert_eq!(take(&mut ledger, &wide).expect("fits").nodes(), [0, 1]);
    assert!(!ledger.can_ever_fit(&Resources { nodes: 4, ..amounts(1, 1, 0) }));
    let mut ledger = three_nodes();
    let known = ledger.adopt(&wide, &[], &[0, 1]);
    assert_eq!(take(&mut ledger, &amounts(1, 1, 0)).expect("fits").nodes(), [2], "also when it was found running");
    assert_eq!(known.nodes(), [0, 1]);
}

#[test]
fn a_runner_that_starts_processes_itself_uses_its_own_node_only() {
    let mut ledger = three_nodes();
    let here = ledger.reserve(&amounts(3, 1, 0), NodeScope::FirstNode).expect("fits");
    assert_eq!((here.nodes(), ledger.reserve(&amounts(3, 1, 0), NodeScope::FirstNode)), (vec![0], None));
    assert_eq!(take(&mut ledger, &amounts(3, 1, 0)).expect("elsewhere").nodes(), [1]);
    // One that starts the rest of itself begins on the first node, and owns it.
    let wide = Resources { nodes: 2, ..amounts(1, 1, 0) };
    let mut ledger = three_nodes();
    let here = ledger.reserve(&amounts(1, 1, 0), NodeScope::FirstNode).expect("fits");
    assert_eq!(ledger.reserve(&wide, NodeScope::FirstNode), None, "two nodes are free, but not the first");
    ledger.release(here);
    assert_eq!(ledger.reserve(&wide, NodeScope::FirstNode).expect("fits").nodes(), [0, 1]);
}

proptest! {
    #[test]
    fn never_negative_never_overlapping_and_whole_again(
        steps in prop::collection::vec((any::<bool>(), 0_i64..5, 0_i64..40, 0_i64..4, any::<prop::sample::Index>()), 0..200),
        slots in prop::option::of(0_u32..4),
    ) {
        let strategy = slots.map_or(Strategy::Resources, Strategy::Slots);
        let mut ledger = Ledger::new(strategy, amounts(8, 100, 0), devices(3));
        let mut held = Vec::new();
        for (takes, cpus, memory, gpus, pick) in steps {
            let need = amounts(cpus, memory, gpus);
            if takes {
                held.extend(take(&mut ledger, &need));
            } else if !held.is_empty() {
                let at = pick.index(held.len());
                ledger.release(held.swap_remove(at));
            }
            let free = ledger.free();
            prop_assert!(free.cpus >= 0 && free.memory_bytes >= 0 && free.gpus >= 0);
            let used: i64 = held.iter().flat_map(|reservation| &reservation.pieces).map(|piece| piece.amounts.cpus).sum();
            prop_assert_eq!(used + free.cpus, 8);
            let mut names: Vec<String> = held.iter().flat_map(|reservation| ledger.device_names(reservation)).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            prop_assert_eq!(names.len(), count);
            if let Some(slots) = slots {
                prop_assert!(held.len() <= slots as usize);
            }
        }
        for reservation in held {
            ledger.release(reservation);
        }
        prop_assert_eq!(ledger.free(), ledger.capacity());
        prop_assert_eq!(ledger.free_slots(), slots);
    }
}

#[test]
fn nothing_new_is_put_on_a_node_that_is_out_of_service() {
    let two = Resources { nodes: 2, ..amounts(4, 100, 0) };
    let mut ledger = Ledger::new(Strategy::Resources, two, devices(0));
    let there = take(&mut ledger, &amounts(1, 10, 0)).expect("fits");
    ledger.set_in_service(0, false);
    assert_eq!((ledger.free().cpus, ledger.free().nodes), (2, 1));
    let other = take(&mut ledger, &amounts(2, 10, 0)).expect("the other node is there");
    assert_eq!(other.nodes(), [1]);
    assert!(take(&mut ledger, &amounts(1, 1, 0)).is_none());
    assert!(ledger.reserve(&amounts(1, 1, 0), NodeScope::FirstNode).is_none());
    ledger.release(there);
    ledger.release(other);
    assert!(take(&mut ledger, &Resources { nodes: 2, ..amounts(1, 1, 0) }).is_none(), "a whole pair is not there");
    ledger.set_in_service(0, true);
    assert_eq!(ledger.free(), ledger.capacity());
    let mut slots = Ledger::new(Strategy::Slots(3), amounts(1, 1, 0), devices(0));
    slots.set_in_service(0, false);
    assert_eq!((slots.free_slots(), take(&mut slots, &amounts(1, 1, 0)).is_some()), (Some(0), false));
    slots.set_in_service(0, true);
    assert_eq!(slots.free_slots(), Some(3));
}
