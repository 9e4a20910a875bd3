//! Models of a crew under loom.

use super::*;
use loom::thread;

fn share(crew: &Crew, parts: Vec<u32>) {
    let expected: Vec<_> = parts.iter().map(|part| part * 10).collect();
    let parts = Parts::new(parts);
    crew.share(1, &|| {
        parts.work(|part: u32| Ok::<_, ()>(part * 10)).unwrap();
    });
    assert!(parts.into_results().eq(expected));
}

/// In every order of two threads each part is done once, and the one that shares waits for the other.
#[test]
fn a_thread_and_its_helper() {
    loom::model(|| {
        let crew = Crew::new("model", 1);
        share(&crew, vec![1, 2]);
        share(&crew, vec![3]);
    });
}

/// Two threads share at once, and one helper comes to both or to none.
#[test]
fn two_threads_and_a_helper() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let crew = Arc::new(Crew::new("model", 1));
        let other = {
            let crew = Arc::clone(&crew);
            thread::spawn(move || share(&crew, vec![1]))
        };
        share(&crew, vec![2]);
        other.join().unwrap();
    });
}
