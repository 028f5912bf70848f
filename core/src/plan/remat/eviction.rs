//! Evictions: a value is dropped between two of its events and made again
//! before the second.
//!
//! What the value is made from must then be there: an input that is dead by
//! then is either kept until then, made again as well, or, where it is made
//! again later anyway, made earlier.

use super::Problem;
use super::timeline::{Event, Run, Timeline};

/// A change of a schedule.
#[derive(Clone, Debug, Default)]
pub struct Eviction {
    /// Moment before which the new runs come.
    pub before: usize,
    /// The new runs, in order.
    pub insert: Vec<usize>,
    /// Moments of runs that the new ones replace.
    pub replace: Vec<usize>,
    /// Time that it adds.
    pub seconds: f64,
    /// Changes of the bytes in use: from a moment (inclusive) to another
    /// (exclusive).
    pub changes: Vec<(usize, usize, i64)>,
    /// Bytes of all that is made again.
    pub made_bytes: u64,
    /// Whether an input was kept that could have been made again: a deeper
    /// eviction exists.
    pub cut: bool,
}

/// Stretches of time in which a value waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The value.
    pub value: usize,
    /// The moment from which on it waits.
    pub from: usize,
    /// The moment at which it is read next.
    pub to: usize,
}

/// All gaps that may be evicted.
pub fn gaps(problem: &Problem, timeline: &Timeline) -> Vec<Gap> {
    let mut out = Vec::new();
    for value in 0..problem.bytes.len() {
        let Some(producer) = problem.producer[value].filter(|_| problem.bytes[value] > 0) else {
            continue;
        };
        if !problem.tasks[producer].repeatable {
            continue;
        }
        for pair in timeline.events(value).windows(2) {
            let [Event { moment: from, .. }, Event { moment: to, made: false }] = *pair else {
                continue;
            };
            if to - from > 1 && may_run(problem, timeline, producer, to) {
                out.push(Gap { value, from, to });
            }
        }
    }
    out
}

/// Whether a task may run right before this moment.
fn may_run(problem: &Problem, timeline: &Timeline, task: usize, moment: usize) -> bool {
    let task = &problem.tasks[task];
    task.repeatable && timeline.runs[moment - 1].stage as usize <= task.deadline
}

/// The eviction of a gap in which at most `depth` further tasks run again.
pub fn evict(problem: &Problem, timeline: &Timeline, gap: Gap, depth: usize) -> Eviction {
    let mut eviction = Eviction { before: gap.to, ..Eviction::default() };
    eviction.changes.push((gap.from + 1, gap.to, -(problem.bytes[gap.value] as i64)));
    let producer = problem.producer[gap.value].expect("gaps have producers");
    let mut left = depth;
    eviction.again(problem, timeline, producer, &mut left);
    eviction
}

impl Eviction {
    /// Makes a task run before the moment, with what it needs.
    fn again(&mut self, problem: &Problem, timeline: &Timeline, task: usize, left: &mut usize) {
        self.seconds += problem.tasks[task].seconds;
        for v in &problem.tasks[task].inputs {
            self.provide(problem, timeline, *v, left);
        }
        self.made_bytes +=
            problem.tasks[task].outputs.iter().map(|v| problem.bytes[*v]).sum::<u64>();
        self.insert.push(task);
    }

    /// Sees to it that a value is there.
    fn provide(&mut self, problem: &Problem, timeline: &Timeline, value: usize, left: &mut usize) {
        let producer = problem.producer[value];
        if producer.is_some_and(|p| self.insert.contains(&p)) {
            return;
        }
        let events = timeline.events(value);
        let next = events.partition_point(|e| e.moment < self.before);
        if events.get(next).is_some_and(|e| !e.made) {
            return;
        }
        let bytes = problem.bytes[value] as i64;
        let may = producer.filter(|p| may_run(problem, timeline, *p, self.before));
        if let (Some(again), Some(task)) = (events.get(next), may) {
            // It is made again later: earlier will do for both.
            self.replace.push(again.moment);
            self.changes.push((self.before, again.moment, bytes));
            self.again(problem, timeline, task, left);
            self.seconds -= problem.tasks[task].seconds;
            return;
        }
        match may {
            Some(task) if *left > 0 => {
                *left -= 1;
                self.again(problem, timeline, task, left);
            }
            _ => {
                self.cut |= may.is_some();
                let last = events[..next].last().map_or(0, |e| e.moment);
                self.changes.push((last + 1, self.before, bytes));
            }
        }
    }

    /// The changed schedule.
    pub fn apply(&self, timeline: &Timeline) -> Vec<Run> {
        let mut out = Vec::with_capacity(timeline.runs.len() + self.insert.len());
        let stage = timeline.runs[self.before - 1].stage;
        for (at, run) in timeline.runs.iter().enumerate() {
            if at + 1 == self.before {
                out.extend(self.insert.iter().map(|task| Run { task: *task as u32, stage }));
            }
            if !self.replace.contains(&(at + 1)) {
                out.push(*run);
            }
        }
        out
    }
}
