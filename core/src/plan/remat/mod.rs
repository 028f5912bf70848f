//! Recomputation: which values to drop and make again, so that a part takes
//! less memory for little time.

mod descent;
mod eviction;
mod improve;
mod problem;
mod timeline;

pub use problem::{Problem, Task};
pub use timeline::{Run, Timeline};

/// A schedule of a part with its peak and time.
#[derive(Clone, Debug)]
pub struct Point {
    /// Most bytes in use at once.
    pub peak_bytes: u64,
    /// Time of all runs.
    pub seconds: f64,
    /// The runs.
    pub runs: Vec<Run>,
}

/// Schedules of a part from the fastest to the smallest: each is slower and
/// smaller than the one before.
pub fn frontier(problem: &Problem) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    use descent::Score;
    for score in [Score::Excess, Score::Foresight, Score::Staleness] {
        descent::descend(problem, score, &mut |t| {
            points.push(Point {
                peak_bytes: t.peak_bytes,
                seconds: t.seconds,
                runs: t.runs.clone(),
            });
        });
    }
    points.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.peak_bytes.cmp(&b.peak_bytes)));
    let mut smallest = u64::MAX;
    points.retain(|p| {
        let better = p.peak_bytes < smallest;
        smallest = smallest.min(p.peak_bytes);
        better
    });
    points
}
