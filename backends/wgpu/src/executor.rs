//! A loaded plan: buffers, pipelines, prepared bind groups, and the runs.

use std::sync::Arc;
use std::time::Instant;

use plimsoll_core::backend::{Executor, OpTime};
use plimsoll_core::launch::{Launch, PARAMETER_BYTES, StorageId};
use plimsoll_core::ledger::Ledger;
use plimsoll_core::ops::Op;
use plimsoll_core::ops::matmul::Variant;
use plimsoll_core::plan::{Plan, PlannedNode, types};
use plimsoll_core::{Error, Result};
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindingResource, BufferBinding, BufferSize,
    BufferUsages, ComputePass, ComputePipeline,
};

use crate::buffers::{self, Held, Staging, Upload};
use crate::device::Shared;
use crate::pipelines::Pipelines;
use crate::tuner::{self, Key, Tuner};

/// One prepared dispatch.
struct Dispatch {
    pipeline: ComputePipeline,
    group: BindGroup,
    groups: [u32; 3],
}

/// A plan on a wgpu device.
pub struct WgpuExecutor {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    pages: Vec<Held>,
    staging: Staging,
    readback: Held,
    /// For each part and node, its dispatches.
    parts: Vec<Vec<Vec<Dispatch>>>,
    notes: Vec<String>,
    // Bound by the dispatches.
    _parameters: Option<Held>,
}

impl WgpuExecutor {
    /// Makes the plan's requests in their order and prepares every dispatch.
    pub fn load(shared: Arc<Shared>, plan: &Arc<Plan>, ledger: &Ledger) -> Result<WgpuExecutor> {
        shared.check()?;
        let (planned, own) = (&plan.device, &shared.description);
        // Kernels were chosen by these limits, and places by the pages.
        if planned.capabilities != own.capabilities
            || planned.page_bytes > own.page_bytes
            || !planned.alignment_bytes.is_multiple_of(own.alignment_bytes)
            || planned.parameter_block_bytes != own.parameter_block_bytes
        {
            let message =
                format!("the plan was made for {}; plan again for this device", planned.name);
            return Err(shared.error(message));
        }
        let arena = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
        let (mut pages, mut slots, mut parameters, mut readback) = (vec![], vec![], None, None);
        for (i, request) in plan.requests.iter().enumerate() {
            let hold = |usage| Held::new(&shared, ledger, request, usage);
            match request.what.as_str() {
                _ if i < plan.pages.len() => pages.push(hold(arena)?),
                "parameter blocks" => {
                    parameters = Some(hold(BufferUsages::UNIFORM | BufferUsages::COPY_DST)?);
                }
                "readback" => {
                    readback = Some(hold(BufferUsages::MAP_READ | BufferUsages::COPY_DST)?)
                }
                _ => slots.push(hold(BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC)?),
            }
        }
        let readback = readback.ok_or_else(|| shared.error("the plan has no readback buffer"))?;
        if slots.is_empty() {
            return Err(shared.error("the plan has no staging slots"));
        }
        let mut loaded = WgpuExecutor {
            staging: Staging::new(slots),
            shared,
            plan: Arc::clone(plan),
            pages,
            readback,
            parts: Vec::new(),
            notes: Vec::new(),
            _parameters: None,
        };
        if let Some(parameters) = parameters {
            loaded.prepare(&parameters)?;
            loaded._parameters = Some(parameters);
        }
        loaded.shared.check()?;
        Ok(loaded)
    }

    /// Tunes, lowers, compiles and binds all launches.
    fn prepare(&mut self, parameters: &Held) -> Result<()> {
        let plan = Arc::clone(&self.plan);
        let mut pipelines = Pipelines::default();
        let mut tuner = Tuner::new(&self.shared.description);
        for key in tuner::keys(&plan) {
            let node = key.1;
            tuner.tune(key.0, |variant| {
                self.time(&plan, node, variant, parameters, &mut pipelines)
            })?;
        }
        let chosen = |node: &PlannedNode| match &node.op {
            Op::Matmul(op) => Some(tuner.choice(Key::of(op, &types(&node.inputs)))),
            Op::LinearCrossEntropy(op) => Some(tuner.choice(Key::of_chunk(op, node))),
            Op::LinearCrossEntropyGradient(op) => {
                Some(tuner.choice(Key::of_chunk(&op.forward, node)))
            }
            _ => None,
        };
        let launches: Vec<Vec<Vec<Launch>>> = plan
            .parts
            .iter()
            .map(|part| part.nodes.iter().map(|n| plan.lower(n, chosen(n))).collect())
            .collect();
        let all = || launches.iter().flatten().flatten();
        let kernels: Vec<_> = all().map(|l| l.kernel.clone()).collect();
        pipelines.compile(&self.shared, &kernels)?;
        let blocks: Vec<&Launch> = all().collect();
        self.write_parameters(parameters, &blocks)?;
        let mut block = 0;
        for part in &launches {
            let mut nodes = Vec::new();
            for node in part {
                let mut dispatches = Vec::new();
                for launch in node {
                    dispatches.push(self.bind(launch, block, parameters, &pipelines)?);
                    block += 1;
                }
                nodes.push(dispatches);
            }
            self.parts.push(nodes);
        }
        if tuner.used_arena() {
            self.clear_arena()?;
        }
        self.notes = tuner.notes();
        tuner.store();
        Ok(())
    }

    fn write_parameters(&mut self, parameters: &Held, launches: &[&Launch]) -> Result<()> {
        let stride = self.shared.description.parameter_block_bytes as usize;
        let mut bytes = vec![0u8; stride * launches.len()];
        for (block, launch) in bytes.chunks_exact_mut(stride).zip(launches) {
            let words: &[u8] = bytemuck::cast_slice(&launch.parameters);
            let block = block.get_mut(..words.len());
            let block = block.ok_or_else(|| Error::Plan("a parameter block is too long".into()))?;
            block.copy_from_slice(words);
        }
        self.upload_pieces(&parameters.buffer.clone(), 0, &bytes)
    }

    /// Writes any amount of data, slot by slot.
    fn upload_pieces(&mut self, to: &wgpu::Buffer, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let piece = (self.staging.slot_bytes() / 4 * 4) as usize;
        for (n, data) in data.chunks(piece).enumerate() {
            let bytes = (data.len() as u64).next_multiple_of(4);
            let offset_bytes = offset_bytes + (n * piece) as u64;
            let upload = Upload { to, offset_bytes, data, bytes };
            self.staging.submit(&self.shared, &[upload], |_| {})?;
        }
        Ok(())
    }

    fn bind(
        &self,
        launch: &Launch,
        block: u64,
        parameters: &Held,
        pipelines: &Pipelines,
    ) -> Result<Dispatch> {
        let kernel = &launch.kernel;
        let missing = || Error::Plan(format!("kernel {} was not compiled", kernel.name));
        let pipeline = pipelines.get(kernel).ok_or_else(missing)?;
        let mut entries: Vec<BindGroupEntry<'_>> = launch
            .bindings
            .iter()
            .enumerate()
            .map(|(i, id)| {
                let s = &self.plan.storages[*id];
                let buffer = &self.pages[s.page].buffer;
                entry(i as u32, buffer, s.offset_bytes, s.bytes)
            })
            .collect();
        let stride = self.shared.description.parameter_block_bytes;
        let at = launch.bindings.len() as u32;
        entries.push(entry(at, &parameters.buffer, block * stride, PARAMETER_BYTES));
        let descriptor =
            BindGroupDescriptor { label: None, layout: &pipeline.layout, entries: &entries };
        let group = self.shared.scoped(|| self.shared.device.create_bind_group(&descriptor));
        let group = group.map_err(|e| Error::Kernel {
            kernel: kernel.name.clone(),
            device: self.shared.description.name.clone(),
            message: e.to_string(),
        })?;
        Ok(Dispatch { pipeline: pipeline.pipeline.clone(), group, groups: launch.groups })
    }

    /// Seconds of a product by one variant, on the node's own memory in the
    /// arena, which holds nothing yet. The first run compiles in some drivers
    /// and is not counted.
    fn time(
        &mut self,
        plan: &Plan,
        node: &PlannedNode,
        variant: Variant,
        parameters: &Held,
        pipelines: &mut Pipelines,
    ) -> Result<f64> {
        let launches = plan.lower(node, Some(variant));
        let kernels: Vec<_> = launches.iter().map(|l| l.kernel.clone()).collect();
        pipelines.compile(&self.shared, &kernels)?;
        self.write_parameters(parameters, &launches.iter().collect::<Vec<_>>())?;
        let dispatches = launches
            .iter()
            .enumerate()
            .map(|(i, l)| self.bind(l, i as u64, parameters, pipelines))
            .collect::<Result<Vec<_>>>()?;
        let mut best = f64::INFINITY;
        for run in 0..tuner::RUNS {
            let start = Instant::now();
            self.staging.submit(&self.shared, &[], |encoder| {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                dispatches.iter().for_each(|d| dispatch(&mut pass, d));
            })?;
            self.shared.wait()?;
            if run > 0 {
                best = best.min(start.elapsed().as_secs_f64());
            }
        }
        Ok(best)
    }

    /// Zeros, as a fresh arena has them.
    fn clear_arena(&mut self) -> Result<()> {
        let pages = &self.pages;
        self.staging.submit(&self.shared, &[], |encoder| {
            pages.iter().for_each(|p| encoder.clear_buffer(&p.buffer, 0, None));
        })
    }

    fn wrong_size(&self, storage: StorageId, bytes: usize) -> Error {
        let s = &self.plan.storages[storage];
        let message = format!("{bytes} bytes do not fit into {}", s.bytes);
        Error::Input { name: s.name.clone(), message }
    }

    fn submit(
        &mut self,
        uploads: &[(StorageId, &[u8])],
        part: usize,
        nodes: std::ops::Range<usize>,
    ) -> Result<()> {
        let mut placed = Vec::with_capacity(uploads.len());
        for (id, data) in uploads {
            let s = &self.plan.storages[*id];
            if data.len() as u64 > s.bytes {
                return Err(self.wrong_size(*id, data.len()));
            }
            let to = &self.pages[s.page].buffer;
            placed.push(Upload { to, offset_bytes: s.offset_bytes, data, bytes: s.bytes });
        }
        let dispatches = &self.parts[part][nodes];
        self.staging.submit(&self.shared, &placed, |encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            dispatches.iter().flatten().for_each(|d| dispatch(&mut pass, d));
        })
    }
}

fn entry(binding: u32, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> BindGroupEntry<'_> {
    let size = BufferSize::new(bytes);
    BindGroupEntry {
        binding,
        resource: BindingResource::Buffer(BufferBinding { buffer, offset, size }),
    }
}

fn dispatch(pass: &mut ComputePass<'_>, d: &Dispatch) {
    pass.set_pipeline(&d.pipeline);
    pass.set_bind_group(0, &d.group, &[]);
    let [x, y, z] = d.groups;
    pass.dispatch_workgroups(x, y, z);
}

impl Executor for WgpuExecutor {
    fn write(&mut self, storage: StorageId, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let s = &self.plan.storages[storage];
        if offset_bytes + data.len() as u64 > s.bytes {
            return Err(self.wrong_size(storage, data.len()));
        }
        let (page, offset) = (s.page, s.offset_bytes + offset_bytes);
        let buffer = self.pages[page].buffer.clone();
        self.upload_pieces(&buffer, offset, data)
    }

    fn run(&mut self, part: usize, uploads: &[(StorageId, &[u8])]) -> Result<()> {
        self.submit(uploads, part, 0..self.parts[part].len())
    }

    fn read(&mut self, storage: StorageId, offset_bytes: u64, out: &mut [u8]) -> Result<()> {
        let s = &self.plan.storages[storage];
        if offset_bytes + out.len() as u64 > s.bytes {
            return Err(self.wrong_size(storage, out.len()));
        }
        let page = &self.pages[s.page].buffer;
        buffers::read(&self.shared, &self.readback, page, s.offset_bytes + offset_bytes, out)
    }

    fn synchronize(&mut self) -> Result<()> {
        self.shared.wait()
    }

    /// Submits node by node and waits for each: timestamp queries would need
    /// buffers that the plan does not hold.
    fn profile(&mut self, part: usize, uploads: &[(StorageId, &[u8])]) -> Result<Vec<OpTime>> {
        self.submit(uploads, part, 0..0)?;
        self.shared.wait()?;
        let mut times = Vec::new();
        for node in 0..self.parts[part].len() {
            let start = Instant::now();
            self.submit(&[], part, node..node + 1)?;
            self.shared.wait()?;
            times.push(OpTime { part, node, seconds: start.elapsed().as_secs_f64() });
        }
        Ok(times)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}
