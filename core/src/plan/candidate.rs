//! One count of micro-batches with all schedules of its parts.

use std::collections::BTreeMap;

use super::liveness::Layout;
use super::place::place;
use super::remat::{self, Point, Problem, Timeline};
use super::search::PlanRequest;
use super::{MicroBatch, PartKind, Plan, cost, lower};
use crate::device::DeviceDescription;
use crate::error::Result;
use crate::graph::Leaf;
use crate::program::{self, PartProgram, rewrite};

/// A training step cut into a given number of micro-batches.
pub struct Candidate<'a> {
    request: &'a PlanRequest<'a>,
    device: &'a DeviceDescription,
    sizes: Vec<usize>,
    programs: Vec<PartProgram>,
    /// Time of a step as traced.
    pub seconds: f64,
}

/// How a candidate's parts are run.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Predicted time of a step.
    pub seconds: f64,
    /// What its plan takes if nothing is lost between tensors.
    pub bytes: u64,
    /// For each part with schedules, which of them.
    points: Vec<usize>,
}

/// What recomputation works on, and what it cannot change.
pub struct Frame {
    /// The parts that may be rescheduled, by position.
    problems: Vec<(usize, Problem)>,
    /// All that is always there: outside the arena, weights, states.
    base_bytes: u64,
    /// Gradient sums.
    training_bytes: u64,
    /// The most that comes and goes in the other parts of a step.
    update_bytes: u64,
    /// The most that comes and goes in evaluation and prediction.
    evaluation_bytes: u64,
}

impl Frame {
    /// Bytes of a plan in whose micro-batches at most this much comes and goes.
    fn total_bytes(&self, live_bytes: u64) -> u64 {
        let training = self.training_bytes + live_bytes.max(self.update_bytes);
        self.base_bytes + training.max(self.evaluation_bytes)
    }

    /// What no schedule can do without.
    pub fn floor_bytes(&self) -> u64 {
        self.total_bytes(self.problems.iter().map(|(_, p)| p.floor_bytes()).max().unwrap_or(0))
    }
}

/// A candidate's schedules.
pub struct Schedules {
    /// The parts that have some, and these, the fastest first.
    parts: Vec<(usize, Vec<Point>)>,
    /// The choices, the fastest first.
    pub choices: Vec<Choice>,
}

/// Sizes of `k` micro-batches of a batch, as even as possible, large ones first.
pub fn micro_batch_sizes(batch: usize, k: usize) -> Vec<usize> {
    (0..k).map(|i| batch / k + usize::from(i < batch % k)).collect()
}

impl<'a> Candidate<'a> {
    /// Traces the step's parts.
    pub fn new(
        request: &'a PlanRequest<'a>,
        k: usize,
        device: &'a DeviceDescription,
    ) -> Result<Candidate<'a>> {
        let sizes = micro_batch_sizes(request.batch, k);
        let mut distinct = sizes.clone();
        distinct.dedup();
        let mut evaluate = Vec::new();
        if let Some(items) = request.evaluate_items {
            let full = distinct[0].min(items);
            evaluate.push(full);
            if items % full != 0 {
                evaluate.push(items % full);
            }
        }
        let PlanRequest { model, recipe, batch, predict_items, .. } = *request;
        let programs = program::build(model, recipe, batch, &distinct, &evaluate, predict_items)?;
        let mut candidate = Candidate { request, device, sizes, programs, seconds: 0.0 };
        let part_seconds = |p: &PartProgram| cost::part_seconds(p, device);
        candidate.seconds = candidate.step_seconds(part_seconds);
        Ok(candidate)
    }

    /// Time of a step by that of its parts.
    fn step_seconds(&self, seconds: impl Fn(&PartProgram) -> f64) -> f64 {
        let times = |kind| match kind {
            PartKind::Begin | PartKind::Update => 1,
            PartKind::Micro { items } => self.sizes.iter().filter(|s| **s == items).count(),
            PartKind::Evaluate { .. } | PartKind::Predict { .. } => 0,
        };
        self.programs.iter().map(|p| times(p.kind) as f64 * seconds(p)).sum()
    }

    /// The plan of the parts as traced.
    pub fn given(&self) -> Result<Plan> {
        self.plan(&self.programs, self.seconds)
    }

    /// The plan of a choice.
    pub fn chosen(&self, schedules: &Schedules, choice: &Choice) -> Result<Plan> {
        let mut programs = self.programs.clone();
        for ((part, points), point) in schedules.parts.iter().zip(&choice.points) {
            let runs: Vec<usize> = points[*point].runs.iter().map(|r| r.task as usize).collect();
            programs[*part] = rewrite::reschedule(&self.programs[*part], &runs)?;
        }
        let plan = self.plan(&programs, choice.seconds)?;
        let gap_bytes = plan.arena_bytes - plan.live_bound_bytes;
        debug_assert_eq!(plan.peak_bytes - gap_bytes, choice.bytes, "the simulator is exact");
        Ok(plan)
    }

    fn plan(&self, programs: &[PartProgram], seconds: f64) -> Result<Plan> {
        let mut plan = place(Layout::new(programs, &self.device.capabilities)?, self.device)?;
        plan.batch = self.request.batch;
        plan.recipe = format!("{:?}", self.request.recipe);
        let mut first_item = 0;
        for &items in &self.sizes {
            let part = plan.part(PartKind::Micro { items }).expect("one part a size");
            plan.micro_batches.push(MicroBatch { part, first_item, items });
            first_item += items;
        }
        plan.step_seconds = seconds;
        Ok(plan)
    }

    /// What recomputation works on, given the plan of the parts as traced.
    pub fn frame(&self, given: &Plan) -> Frame {
        let align = self.device.alignment_bytes;
        let mut leaves: BTreeMap<&str, (bool, u64)> = BTreeMap::new();
        for v in self.programs.iter().flat_map(|p| &p.values) {
            if let Some(leaf) = v.leaf.as_ref().filter(|l| **l != Leaf::Input) {
                let bytes = v.bytes.next_multiple_of(align);
                leaves.insert(&v.name, (*leaf == Leaf::Accumulator, bytes));
            }
        }
        let sum = |sums: bool| leaves.values().filter(|l| l.0 == sums).map(|l| l.1).sum::<u64>();
        let mut frame = Frame {
            problems: Vec::new(),
            base_bytes: given.peak_bytes - given.arena_bytes + sum(false),
            training_bytes: sum(true),
            update_bytes: 0,
            evaluation_bytes: 0,
        };
        for (i, program) in self.programs.iter().enumerate() {
            let problem = Problem::of(program, self.device);
            let peak = || Timeline::given(&problem).peak_bytes;
            match program.kind {
                PartKind::Micro { .. } => frame.problems.push((i, problem)),
                PartKind::Begin | PartKind::Update => {
                    frame.update_bytes = frame.update_bytes.max(peak());
                }
                PartKind::Evaluate { .. } | PartKind::Predict { .. } => {
                    frame.evaluation_bytes = frame.evaluation_bytes.max(peak());
                }
            }
        }
        frame
    }

    /// All schedules and choices.
    pub fn schedules(&self, given: &Plan, frame: &Frame) -> Schedules {
        let block = self.device.parameter_block_bytes;
        let mut parts = Vec::new();
        let mut extra: Vec<Vec<u64>> = Vec::new(); // parameter blocks of what runs again
        for (part, problem) in &frame.problems {
            let points = remat::frontier(problem);
            let nodes = &given.parts[*part].nodes;
            let launches: Vec<u64> = match block {
                0 => vec![0; nodes.len()],
                _ => nodes.iter().map(|n| lower(self.device, n, None).len() as u64).collect(),
            };
            let once: u64 = launches.iter().sum();
            let all = |p: &Point| p.runs.iter().map(|r| launches[r.task as usize]).sum::<u64>();
            extra.push(points.iter().map(|p| (all(p) - once) * block).collect());
            parts.push((*part, points));
        }
        let mut schedules = Schedules { parts, choices: Vec::new() };
        let parts = &schedules.parts;
        // Parts share the arena: for each line, the fastest of each part that
        // keeps to it.
        let mut lines: Vec<u64> =
            parts.iter().flat_map(|(_, points)| points).map(|p| p.peak_bytes).collect();
        lines.sort_unstable_by(|a, b| b.cmp(a));
        lines.dedup();
        for line in lines {
            let fastest = |points: &Vec<Point>| points.iter().position(|p| p.peak_bytes <= line);
            let Some(points) = parts.iter().map(|(_, p)| fastest(p)).collect::<Option<Vec<_>>>()
            else {
                break;
            };
            let seconds = self.step_seconds(|program| {
                let at = parts.iter().position(|(i, _)| std::ptr::eq(program, &self.programs[*i]));
                at.map_or_else(
                    || cost::part_seconds(program, self.device),
                    |at| parts[at].1[points[at]].seconds,
                )
            });
            let peak = |at: usize| parts[at].1[points[at]].peak_bytes;
            let live = (0..points.len()).map(peak).max().unwrap_or(0);
            let blocks: u64 = points.iter().zip(&extra).map(|(p, e)| e[*p]).sum();
            let bytes = frame.total_bytes(live) + blocks;
            schedules.choices.push(Choice { seconds, bytes, points });
        }
        schedules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_even() {
        assert_eq!(micro_batch_sizes(10, 3), vec![4, 3, 3]);
        assert_eq!(micro_batch_sizes(10, 7), vec![2, 2, 2, 1, 1, 1, 1]);
    }
}
