//! The serial part of a job, from its times on several numbers of cores.
//!
//! The model is Amdahl's: on `n` cores a unit of work takes `serial + parallel / n`.

/// Times of a unit of work, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    /// Time that does not shrink with the number of cores.
    pub(super) serial_us: f64,
    /// Time on one core of what is divided over all cores.
    pub(super) parallel_us: f64,
}

impl Fit {
    /// The model that is closest to `times`, pairs of a number of cores and microseconds, by the squares of relative
    /// errors. `None` for fewer than two different numbers of cores.
    pub(super) fn of(times: &[(usize, f64)]) -> Option<Self> {
        let first = times.first()?.0;
        if times.iter().all(|(cores, _)| *cores == first) {
            return None;
        }
        // With x = 1 / (cores * time) and y = 1 / time, serial * y + parallel * x is to be close to 1.
        let [mut xx, mut xy, mut yy, mut x, mut y] = [0.0; 5];
        for (cores, time) in times {
            let (a, b) = (1.0 / (*cores as f64 * time), 1.0 / time);
            xx += a * a;
            xy += a * b;
            yy += b * b;
            x += a;
            y += b;
        }
        let determinant = xx * yy - xy * xy;
        let serial_us = (y * xx - x * xy) / determinant;
        let parallel_us = (x * yy - y * xy) / determinant;
        // Neither part is negative: where the best one would be, the other explains all.
        Some(if serial_us < 0.0 {
            Self {
                serial_us: 0.0,
                parallel_us: x / xx,
            }
        } else if parallel_us < 0.0 {
            Self {
                serial_us: y / yy,
                parallel_us: 0.0,
            }
        } else {
            Self {
                serial_us,
                parallel_us,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-6, "{one} is not {other}");
    }

    #[test]
    fn exact_times_give_their_parts() {
        let times = [1, 2, 4, 16].map(|cores| (cores, 3.0 + 20.0 / cores as f64));
        let fit = Fit::of(&times).unwrap();
        close(fit.serial_us, 3.0);
        close(fit.parallel_us, 20.0);
        assert_eq!(Fit::of(&times[..1]), None);
        assert_eq!(Fit::of(&[]), None);
    }

    #[test]
    fn no_part_is_negative() {
        let faster = Fit::of(&[(1, 10.0), (2, 4.0)]).unwrap();
        close(faster.serial_us, 0.0);
        assert!(faster.parallel_us > 0.0);
        let slower = Fit::of(&[(1, 10.0), (2, 12.0)]).unwrap();
        close(slower.parallel_us, 0.0);
        assert!(slower.serial_us > 10.0 && slower.serial_us < 12.0);
    }
}
