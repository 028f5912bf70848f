//! The exact simulator: memory and time of a schedule.
//!
//! A schedule is a list of runs of tasks. Each run reads the latest instance
//! of its inputs; an instance lives from the run that makes it to its last
//! read. So a schedule in which a task appears twice says all there is to say
//! about recomputation.

use super::Problem;

/// One run of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// Which task.
    pub task: u32,
    /// The task of the given order that it runs for: itself, or the one before
    /// which it runs again.
    pub stage: u32,
}

/// Something that happens to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When: 0 is the upload, then one moment a run.
    pub moment: usize,
    /// Whether it is made here rather than read.
    pub made: bool,
}

/// A schedule with its memory over time.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The runs, without those that nobody needs.
    pub runs: Vec<Run>,
    /// Bytes in use at each moment.
    pub live: Vec<u64>,
    /// The most of them.
    pub peak_bytes: u64,
    /// Time of all runs.
    pub seconds: f64,
    /// Events of all values, value by value in order of time.
    events: Vec<Event>,
    /// Where each value's events start.
    first_event: Vec<u32>,
}

impl Timeline {
    /// The given order.
    pub fn given(problem: &Problem) -> Timeline {
        let runs = (0..problem.tasks.len() as u32).map(|task| Run { task, stage: task });
        Timeline::new(problem, runs.collect())
    }

    /// Simulates a schedule.
    pub fn new(problem: &Problem, mut runs: Vec<Run>) -> Timeline {
        let values = problem.bytes.len();
        // Backwards: which runs are needed, and where each instance ends.
        let mut needed = vec![false; values];
        let mut needs_run = vec![true; runs.len()];
        let mut dies: Vec<bool> = Vec::new(); // inputs, then outputs, from the last run back
        for (at, run) in runs.iter().enumerate().rev() {
            let task = &problem.tasks[run.task as usize];
            let used = |needed: &[bool]| task.outputs.iter().any(|v| needed[*v]);
            needs_run[at] = !task.repeatable || used(&needed);
            if !needs_run[at] {
                continue;
            }
            for v in task.outputs.iter().rev() {
                dies.push(!std::mem::replace(&mut needed[*v], false));
            }
            for v in task.inputs.iter().rev() {
                dies.push(!std::mem::replace(&mut needed[*v], true));
            }
        }
        let mut keep = needs_run.iter();
        runs.retain(|_| *keep.next().expect("one a run"));
        // Forwards: what is alive.
        let mut live = Vec::with_capacity(runs.len() + 1);
        let mut now: u64 = (0..values).filter(|v| needed[*v]).map(|v| problem.bytes[v]).sum();
        live.push(now);
        let mut next = dies.len();
        let mut taken: Vec<usize> = Vec::new();
        for run in &runs {
            let task = &problem.tasks[run.task as usize];
            let ends = next - task.inputs.len()..next;
            let input_dies = |k: usize| dies[ends.end - 1 - k];
            taken.clear();
            let mut freed = 0;
            let mut made = 0;
            for (k, v) in task.inputs.iter().enumerate() {
                if input_dies(k) {
                    freed += problem.bytes[*v];
                }
            }
            for output in &task.outputs {
                let place = task.in_place.iter().find(|(j, v)| {
                    let at = || task.inputs.binary_search(v).is_ok_and(input_dies);
                    j == output && !taken.contains(v) && at()
                });
                match place {
                    Some((_, v)) => {
                        taken.push(*v);
                        freed -= problem.bytes[*v];
                    }
                    None => made += problem.bytes[*output],
                }
            }
            next -= task.inputs.len() + task.outputs.len();
            for (j, v) in task.outputs.iter().enumerate() {
                if dies[next + task.outputs.len() - 1 - j] {
                    freed += problem.bytes[*v];
                }
            }
            live.push(now + made + task.workspace_bytes);
            now = now + made - freed;
        }
        // Summed in the order of tasks, so that order alone changes no bit of it.
        let mut times = vec![0u32; problem.tasks.len()];
        runs.iter().for_each(|r| times[r.task as usize] += 1);
        let seconds = problem.tasks.iter().zip(times).map(|(t, n)| f64::from(n) * t.seconds).sum();
        let peak_bytes = live.iter().copied().max().unwrap_or(0);
        let (events, first_event) = events(problem, &runs);
        Timeline { runs, live, peak_bytes, seconds, events, first_event }
    }

    /// What happens to a value, in order of time. What is uploaded is made at
    /// moment 0.
    pub fn events(&self, value: usize) -> &[Event] {
        &self.events[self.first_event[value] as usize..self.first_event[value + 1] as usize]
    }

    /// Sum over all moments of the bytes above a line.
    pub fn excess(&self, line_bytes: u64) -> u128 {
        self.live.iter().map(|b| u128::from(b.saturating_sub(line_bytes))).sum()
    }
}

fn events(problem: &Problem, runs: &[Run]) -> (Vec<Event>, Vec<u32>) {
    let values = problem.bytes.len();
    let mut first = vec![0u32; values + 1];
    let mut touched = vec![false; values];
    for run in runs {
        let task = &problem.tasks[run.task as usize];
        for v in task.inputs.iter().chain(&task.outputs) {
            first[v + 1] += 1;
            touched[*v] = true;
        }
    }
    let uploaded = |v: &usize| touched[*v] && problem.producer[*v].is_none();
    (0..values).filter(uploaded).for_each(|v| first[v + 1] += 1);
    for v in 0..values {
        first[v + 1] += first[v];
    }
    let mut next = first.clone();
    let mut out = vec![Event { moment: 0, made: true }; first[values] as usize];
    (0..values).filter(uploaded).for_each(|v| next[v] += 1);
    for (at, run) in runs.iter().enumerate() {
        let task = &problem.tasks[run.task as usize];
        let mut put = |v: &usize, made| {
            out[next[*v] as usize] = Event { moment: at + 1, made };
            next[*v] += 1;
        };
        task.inputs.iter().for_each(|v| put(v, false));
        task.outputs.iter().for_each(|v| put(v, true));
    }
    (out, first)
}
