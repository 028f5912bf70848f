//! The greedy descent: evicts again and again what costs least for what it
//! frees, down to the smallest peak.
//!
//! The line sinks in small steps from the peak of the given order towards what
//! no schedule can do without. At each step evictions are scored by the bytes
//! above the line that they remove over the time that they add; other scores,
//! among them that of Dynamic Tensor Rematerialization (M. Kirisame et al.,
//! ICLR 2021: cost over bytes and staleness), give other descents. The exact
//! simulator judges every step.

use super::Problem;
use super::eviction::{Eviction, Gap, evict, gaps};
use super::improve::improve;
use super::timeline::Timeline;

/// What an eviction is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Bytes × moments above the line that it removes, over its time.
    Excess,
    /// The same above a line much lower: what pays in the long run.
    Foresight,
    /// Bytes × moments in which the value waits, over its time.
    Staleness,
}

/// Most tasks that an eviction runs again beside the evicted value's own.
const DEPTHS: [usize; 4] = [0, 1, 3, 8];
/// Stretches into which time is divided to estimate evictions.
const STRETCHES: usize = 128;
/// How far the line sinks at a step.
const SINK: f64 = 0.04;

/// Calls `point` with every schedule on the way down.
pub fn descend(problem: &Problem, score: Score, point: &mut dyn FnMut(&Timeline)) {
    let mut timeline = Timeline::given(problem);
    point(&timeline);
    let floor = problem.floor_bytes();
    while timeline.peak_bytes > floor {
        let above = timeline.peak_bytes - floor;
        let line = floor + (above as f64 * (1.0 - SINK)) as u64;
        let line = line.min(timeline.peak_bytes - 1);
        let Some(lower) = reach(problem, timeline, line, floor, score, point) else {
            return;
        };
        timeline = improve(problem, lower, line);
        point(&timeline);
    }
}

/// Evicts until the peak is at most `line`; none if that cannot be reached.
fn reach(
    problem: &Problem,
    mut timeline: Timeline,
    line: u64,
    floor: u64,
    score: Score,
    point: &mut dyn FnMut(&Timeline),
) -> Option<Timeline> {
    let mut excess = timeline.excess(line);
    while excess > 0 {
        let ranked = Worth::new(&timeline, line, floor, score).rank(problem, &timeline);
        // Estimates may err: the first that does help.
        let helps = |eviction: &Eviction| {
            let next = Timeline::new(problem, eviction.apply(&timeline));
            let now = next.excess(line);
            (now < excess).then_some((next, now))
        };
        (timeline, excess) = ranked.iter().rev().find_map(|(_, eviction)| helps(eviction))?;
        point(&timeline);
    }
    Some(timeline)
}

/// Estimates what evictions are worth.
struct Worth<'a> {
    score: Score,
    /// The line, or a lower one, above which bytes count.
    line: u64,
    /// Moments of a stretch.
    length: usize,
    /// Most bytes in use in each stretch.
    stretches: Vec<u64>,
    /// Bytes in use at each moment.
    live: &'a [u64],
    /// The line itself.
    true_line: u64,
}

impl<'a> Worth<'a> {
    fn new(timeline: &'a Timeline, line: u64, floor: u64, score: Score) -> Worth<'a> {
        let length = timeline.live.len().div_ceil(STRETCHES);
        let most = |moments: &[u64]| moments.iter().copied().max().unwrap_or(0);
        Worth {
            score,
            line: if score == Score::Foresight { floor + (line - floor) / 2 } else { line },
            length,
            stretches: timeline.live.chunks(length).map(most).collect(),
            live: &timeline.live,
            true_line: line,
        }
    }

    /// All evictions that help, the best last.
    fn rank(&self, problem: &Problem, timeline: &Timeline) -> Vec<(f64, Eviction)> {
        let mut above: Vec<u32> = vec![0; self.live.len() + 1];
        for (t, bytes) in self.live.iter().enumerate() {
            above[t + 1] = above[t] + u32::from(*bytes > self.true_line);
        }
        let mut out: Vec<(f64, Eviction)> = Vec::new();
        for gap in gaps(problem, timeline) {
            if above[gap.to] == above[gap.from + 1] {
                continue;
            }
            let mut best: Option<(f64, Eviction)> = None;
            for depth in DEPTHS {
                let eviction = evict(problem, timeline, gap, depth);
                let worth = self.of(problem, gap, &eviction);
                let cut = eviction.cut;
                if worth > 0.0 && best.as_ref().is_none_or(|(w, _)| worth > *w) {
                    best = Some((worth, eviction));
                }
                if !cut {
                    break;
                }
            }
            out.extend(best);
        }
        out.sort_by(|a, b| a.0.total_cmp(&b.0));
        out
    }

    fn of(&self, problem: &Problem, gap: Gap, eviction: &Eviction) -> f64 {
        let mut change = vec![0i64; self.stretches.len() + 1];
        for (from, to, bytes) in &eviction.changes {
            // Whole stretches that lie within.
            let (from, to) = (from.div_ceil(self.length), to.div_ceil(self.length));
            change[from] += bytes;
            change[to.max(from)] -= bytes;
        }
        let mut gain = 0.0;
        let mut now = 0i64;
        for (bytes, change) in self.stretches.iter().zip(&change) {
            now += change;
            if now != 0 {
                let after = bytes.saturating_add_signed(now).saturating_sub(self.line);
                gain += bytes.saturating_sub(self.line) as f64 - after as f64;
            }
        }
        gain *= self.length as f64;
        // While it is made again, all that is made is there at once.
        let made = self.live[gap.to] + eviction.made_bytes - problem.bytes[gap.value];
        gain -= made.saturating_sub(self.true_line) as f64 * eviction.insert.len() as f64;
        if gain <= 0.0 {
            return 0.0;
        }
        if self.score == Score::Staleness {
            gain = problem.bytes[gap.value] as f64 * (gap.to - gap.from) as f64;
        }
        gain / eviction.seconds.max(1e-12)
    }
}
