//! Local improvement: takes back what turned out to be needless.

use super::Problem;
use super::timeline::Timeline;

/// A schedule that is no slower and stays at or below `line`: runs that it has
/// room for are taken back, the longest first.
pub fn improve(problem: &Problem, mut timeline: Timeline, line: u64) -> Timeline {
    let mut again: Vec<(f64, usize)> = Vec::new(); // time, moment
    let mut seen = vec![false; problem.tasks.len()];
    for (at, run) in timeline.runs.iter().enumerate() {
        if std::mem::replace(&mut seen[run.task as usize], true) {
            again.push((problem.tasks[run.task as usize].seconds, at + 1));
        }
    }
    again.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut gone: Vec<usize> = Vec::new(); // moments of the first timeline
    for (_, moment) in again {
        let now = moment - gone.iter().filter(|g| **g < moment).count();
        let task = &problem.tasks[timeline.runs[now - 1].task as usize];
        // The rise that is certain: it waits from its last event on.
        let fits = task.outputs.iter().all(|v| {
            let events = timeline.events(*v);
            let at = events.partition_point(|e| e.moment < now);
            let read = events.get(at + 1).is_some_and(|e| !e.made);
            let from = events[..at].last().map_or(0, |e| e.moment);
            !read || timeline.live[from + 1..now].iter().all(|b| b + problem.bytes[*v] <= line)
        });
        if !fits {
            continue;
        }
        let mut runs = timeline.runs.clone();
        runs.remove(now - 1);
        let next = Timeline::new(problem, runs);
        if next.peak_bytes <= line && next.seconds < timeline.seconds {
            if next.runs.len() + 1 < timeline.runs.len() {
                // Others went with it: count anew.
                return improve(problem, next, line);
            }
            timeline = next;
            gone.push(moment);
        }
    }
    timeline
}
