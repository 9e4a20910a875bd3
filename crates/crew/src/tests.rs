use super::*;
use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

fn squares(crew: &Crew, helpers: usize, count: u64) -> Vec<u64> {
    let parts = Parts::new((0..count).collect());
    crew.share(helpers, &|| {
        let Ok(()) = parts.work(|part: u64| Ok::<_, Infallible>(part * part));
    });
    parts.into_results().collect()
}

#[test]
fn each_part_is_done_once_and_results_keep_their_order() {
    for helpers in [0, 1, 3, 16] {
        let crew = Crew::new("test", helpers);
        for count in [0, 1, 2, 7, 100] {
            let expected: Vec<u64> = (0..count).map(|part| part * part).collect();
            assert_eq!(squares(&crew, helpers, count), expected);
        }
    }
}

#[test]
fn parts_share_parts_and_many_threads_share_at_once() {
    let crew = Crew::new("test", 3);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let parts = Parts::new((0..8_u64).collect());
                crew.share(3, &|| {
                    let work = |part| Ok::<_, ()>(squares(&crew, 2, part).len() as u64);
                    parts.work(work).unwrap();
                });
                assert!(parts.into_results().eq(0..8));
            });
        }
    });
}

#[test]
fn an_error_ends_the_work_and_a_panic_reaches_the_thread_that_shared() {
    let crew = Crew::new("test", 2);
    let parts = Parts::new((0..1_000).collect::<Vec<u32>>());
    let errors = Mutex::new(Vec::new());
    crew.share(2, &|| {
        let task = |part| if part == 3 { Err(part) } else { Ok(()) };
        if let Err(error) = parts.work(task) {
            errors.lock().unwrap().push(error);
        }
    });
    assert_eq!(*errors.lock().unwrap(), [3]);

    // Each of them waits for the other two, so that helpers panic as well.
    let met = Barrier::new(3);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        crew.share(2, &|| {
            met.wait();
            panic!("a part");
        });
    }));
    assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "a part");
    // And a helper alone.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let met = Barrier::new(2);
        let work = |_: &Helpers<'_>| {
            met.wait();
            panic!("a helper");
        };
        crew.lead(&work, |helpers| {
            assert_eq!(helpers.call(1), 1);
            met.wait();
        });
    }));
    assert_eq!(
        *panicked.unwrap_err().downcast::<&str>().unwrap(),
        "a helper"
    );
    // The helpers go on.
    assert_eq!(squares(&crew, 2, 3), [0, 1, 4]);
}

#[test]
fn all_helpers_that_are_called_come_and_helpers_call_others() {
    let crew = Crew::new("test", 7);
    let met = Barrier::new(8);
    let names = Mutex::new(HashSet::new());
    let come = || {
        met.wait();
        names.lock().unwrap().insert(thread::current().id());
    };
    crew.share(7, &come);
    assert_eq!(names.lock().unwrap().len(), 8);

    // One after another: each calls the next.
    let left = AtomicUsize::new(6);
    let work = |helpers: &Helpers<'_>| {
        let before = left.fetch_sub(1, Ordering::SeqCst);
        if before > 0 {
            helpers.call(1);
        }
        come();
    };
    crew.lead(&work, |helpers| {
        helpers.call(1);
        come();
    });
    assert_eq!(names.into_inner().unwrap().len(), 8);
}

#[test]
fn a_crew_has_no_more_threads_than_it_may_have() {
    let crew = Crew::new("test", 2);
    let called = crew.lead(&|_: &Helpers<'_>| (), |helpers| helpers.call(100));
    assert_eq!(called, 2);
    assert_eq!(lock(&crew.0.state).threads, 2);
    let none = Crew::new("test", 0);
    assert_eq!(
        none.lead(&|_: &Helpers<'_>| (), |helpers| helpers.call(1)),
        0
    );
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // Without the message, which an interpreter takes seconds to print.
        resume_unwind(Box::new("dropped"));
    }
}

/// Two helpers panic, with payloads whose drop panics: the leader must not wait for ever.
#[test]
fn payloads_that_panic_when_dropped() {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let crew = Crew::new("test", 2);
        let met = Barrier::new(3);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            crew.lead(
                &|_: &Helpers<'_>| {
                    met.wait();
                    resume_unwind(Box::new(Bomb))
                },
                |h| {
                    h.call(2);
                    met.wait();
                },
            );
        }))
        .map_err(Box::leak);
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(Duration::from_secs(5))
        .expect("the leader waits for ever");
}

/// "Panics with a panic of `work`, on whichever thread it was."
#[test]
fn share_while_unwinding_reports_a_helpers_panic() {
    struct Guard<'c>(&'c Crew);
    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            let met = Barrier::new(2);
            let shared = catch_unwind(AssertUnwindSafe(|| {
                self.0.lead(
                    &|_: &Helpers<'_>| {
                        met.wait();
                        panic!("a helper")
                    },
                    |h| {
                        h.call(1);
                        met.wait();
                    },
                );
            }));
            if shared.is_ok() {
                SWALLOWED.store(true, Ordering::SeqCst);
            }
        }
    }
    static SWALLOWED: AtomicBool = AtomicBool::new(false);
    let crew = Crew::new("test", 1);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let _g = Guard(&crew);
        panic!("outer")
    }));
    assert!(!SWALLOWED.load(Ordering::SeqCst));
}

/// "Lets `count` more threads help. Returns how many of them there may be: fewer if the crew has not as many".
#[test]
fn call_twice_says_no_more_than_there_are() {
    let crew = Crew::new("test", 2);
    let met = Barrier::new(3);
    let (a, b) = crew.lead(
        &|_: &Helpers<'_>| {
            met.wait();
            met.wait();
        },
        |h| {
            let a = h.call(2);
            met.wait();
            let b = h.call(2);
            met.wait();
            (a, b)
        },
    );
    assert_eq!((a, b), (2, 0));
}

#[test]
fn call_without_bound() {
    let crew = Crew::new("test", 2);
    crew.lead(&|_: &Helpers<'_>| {}, |h| {
        h.call(1);
        h.call(usize::MAX);
    });
}

/// "Nobody takes another part after" an error; a panic too should end the work.
#[test]
fn a_panic_ends_the_work() {
    let crew = Crew::new("test", 1);
    let ran = AtomicUsize::new(0);
    let parts = Parts::new((0..1000).collect::<Vec<u32>>());
    let met = Barrier::new(2);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        crew.share(1, &|| {
            parts
                .work(|p| {
                    if p < 2 {
                        met.wait();
                    }
                    if p == 0 {
                        // Without the message, which takes long to print.
                        resume_unwind(Box::new("part"))
                    }
                    thread::sleep(Duration::from_micros(200));
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, ()>(())
                })
                .unwrap();
        })
    }));
    let ran = ran.load(Ordering::SeqCst);
    assert!(ran < 100, "{ran} parts ran after the panic");
}
