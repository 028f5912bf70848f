//! A part as recomputation sees it: tasks with times, values with sizes.

use crate::device::DeviceDescription;
use crate::graph::Phase;
use crate::plan::cost;
use crate::program::{PartProgram, Use, writers};

/// An op: what it reads and makes of the values whose memory comes and goes.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// Predicted time of one run.
    pub seconds: f64,
    /// Values read, each once.
    pub inputs: Vec<usize>,
    /// Values made; what is stored into a leaf is not among them.
    pub outputs: Vec<usize>,
    /// Scratch memory while it runs.
    pub workspace_bytes: u64,
    /// (output, input): the output may take the input's memory if that dies
    /// here. The first that can for each output does.
    pub in_place: Vec<(usize, usize)>,
    /// Whether it may run more than once, or later than in the given order.
    pub repeatable: bool,
    /// It must not run after this task, which overwrites a leaf that it reads.
    pub deadline: usize,
}

/// What may be run again, at what price.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    /// The tasks in their given order, which is one that works.
    pub tasks: Vec<Task>,
    /// Size of each value in the arena; 0 for what lives anyway.
    pub bytes: Vec<u64>,
    /// The task that makes each value; none for what is uploaded or lives
    /// anyway.
    pub producer: Vec<Option<usize>>,
}

impl Problem {
    /// The problem of a part on a device.
    pub fn of(part: &PartProgram, device: &DeviceDescription) -> Problem {
        let transient = |v: usize| part.is_transient(v);
        let size = |v: usize| match transient(v) {
            true => part.values[v].bytes.next_multiple_of(device.alignment_bytes),
            false => 0,
        };
        let mut producer = vec![None; part.values.len()];
        let writers = writers(part);
        let tasks = part.nodes.iter().enumerate().map(|(n, node)| {
            let distinct = |uses: &[Use]| {
                let mut values: Vec<usize> = uses.iter().map(|u| u.value).collect();
                values.sort_unstable();
                values.dedup();
                values.retain(|v| transient(*v));
                values
            };
            for u in node.outputs.iter().filter(|u| transient(u.value)) {
                producer[u.value] = Some(n);
            }
            let types = node.input_types();
            let mut in_place = Vec::new();
            for (j, o) in node.outputs.iter().enumerate().filter(|(_, o)| transient(o.value)) {
                for (k, u) in node.inputs.iter().enumerate().filter(|(_, u)| transient(u.value)) {
                    if node.may_take(part, k, j) {
                        in_place.push((o.value, u.value));
                    }
                }
            }
            let stores = node.outputs.iter().any(|u| part.values[u.value].assigned.is_some());
            let deadlines = node.inputs.iter().filter_map(|u| writers.get(&u.value));
            Task {
                seconds: cost::node_seconds(&node.op, &types, &node.output_types(), device),
                inputs: distinct(&node.inputs),
                outputs: distinct(&node.outputs),
                workspace_bytes: node
                    .op
                    .workspace_bytes(&types, &device.capabilities)
                    .next_multiple_of(device.alignment_bytes),
                in_place,
                repeatable: !stores && node.phase != Phase::Update,
                deadline: deadlines.min().copied().unwrap_or(usize::MAX),
            }
        });
        let tasks = tasks.collect();
        Problem { tasks, bytes: (0..part.values.len()).map(size).collect(), producer }
    }

    /// What no schedule can do without: the largest sum of what one task reads,
    /// makes and takes as scratch.
    pub fn floor_bytes(&self) -> u64 {
        let touched = |task: &Task| {
            let inputs: u64 = task.inputs.iter().map(|v| self.bytes[*v]).sum();
            let mut taken: Vec<usize> = Vec::new();
            let fresh = |o: &&usize| {
                let place = task.in_place.iter().find(|(j, k)| j == *o && !taken.contains(k));
                place.is_none_or(|(_, k)| {
                    taken.push(*k);
                    false
                })
            };
            let outputs: u64 = task.outputs.iter().filter(fresh).map(|v| self.bytes[*v]).sum();
            inputs + outputs + task.workspace_bytes
        };
        self.tasks.iter().map(touched).max().unwrap_or(0)
    }
}
