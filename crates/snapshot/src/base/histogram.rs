//! Latency histograms with logarithmic buckets: 32 for each power of two, so that a quantile is too
//! large by at most one part in 32.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Number of buckets for each power of two.
const STEPS_PER_DOUBLING: u64 = 32;
/// log2 of the shortest duration, in nanoseconds, whose power of two has buckets of its own: 1.024
/// us. Shorter durations share 32 buckets of 32 ns each.
const FIRST_BITS: u32 = 10;
/// log2 of the duration, in nanoseconds, at which the last bucket ends: 18 minutes. Longer ones
/// count there, too.
const LAST_BITS: u32 = 40;
/// 32 buckets of equal width below the first power of two, then 32 for each.
const BUCKETS: usize =
    (STEPS_PER_DOUBLING + STEPS_PER_DOUBLING * (LAST_BITS - FIRST_BITS) as u64) as usize;

/// Histogram of durations, from which [`Latency`] is derived. Threads add to it without locks.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: array::from_fn(|_| AtomicU64::new(0)),
            max_ns: AtomicU64::new(0),
        }
    }
}

/// Returns the bucket of a duration in nanoseconds.
fn bucket_of(ns: u64) -> usize {
    let bits = ns.max(1 << FIRST_BITS).ilog2();
    let step_bits = bits - STEPS_PER_DOUBLING.ilog2();
    let doubling = u64::from(bits - FIRST_BITS);
    let bucket = STEPS_PER_DOUBLING * doubling + (ns >> step_bits);
    (bucket as usize).min(BUCKETS - 1)
}

/// Returns the longest duration in a bucket, in nanoseconds.
fn end_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let doubling = (bucket / STEPS_PER_DOUBLING).saturating_sub(1);
    let step_bits = FIRST_BITS - STEPS_PER_DOUBLING.ilog2() + doubling as u32;
    ((bucket - STEPS_PER_DOUBLING * doubling + 1) << step_bits) - 1
}

impl Histogram {
    /// Adds one event that took `time`.
    pub fn add(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// Quantiles of the durations added so far.
    pub fn latency(&self) -> Latency {
        let load = |bucket: &AtomicU64| bucket.load(Ordering::Relaxed);
        let buckets: Vec<u64> = self.buckets.iter().map(load).collect();
        let count: u64 = buckets.iter().sum();
        let max_ns = self.max_ns.load(Ordering::Relaxed);
        let at = |part: f64| {
            let wanted = (count as f64 * part).ceil() as u64;
            let mut below = 0;
            let found = buckets.iter().position(|bucket| {
                below += bucket;
                below >= wanted
            });
            found
                .filter(|_| count > 0)
                .map_or(0, |bucket| end_of(bucket).min(max_ns))
        };
        Latency {
            count,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns,
        }
    }
}

/// Quantiles of a duration, in nanoseconds. They are upper bounds, too large by at most 1/32, or by
/// 32 ns below 1.024 us; the maximum is exact. All are 0 if nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Number of measurements.
    pub count: u64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile, in nanoseconds.
    pub p999_ns: u64,
    /// Longest duration, in nanoseconds.
    pub max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_without_gaps_and_narrow() {
        let mut start = 0;
        for bucket in 0..BUCKETS {
            let end = end_of(bucket);
            assert_eq!((bucket_of(start), bucket_of(end)), (bucket, bucket));
            if start >= 1 << FIRST_BITS {
                let width = (end - start + 1) as f64 / start as f64;
                assert!(width <= 1.0 / 32.0, "bucket {bucket} from {start} to {end}");
            }
            start = end + 1;
        }
        assert_eq!(start, 1 << LAST_BITS);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let histogram = Histogram::default();
        assert_eq!(histogram.latency(), Latency::default());
        let times: Vec<u64> = (1..=10_000u64).map(|n| n * n * 37).collect();
        for ns in times.iter().rev() {
            histogram.add(Duration::from_nanos(*ns));
        }
        let got = histogram.latency();
        assert_eq!((got.count, got.max_ns), (10_000, times[9_999]));
        for (got, at) in [
            (got.p50_ns, 4_999),
            (got.p99_ns, 9_899),
            (got.p999_ns, 9_989),
        ] {
            let exact = times[at];
            assert!(
                got >= exact && got as f64 <= exact as f64 * 1.032,
                "{got}, not {exact}"
            );
        }
    }
}
