//! Compiling kernels, each once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use plimsoll_core::launch::{Kernel, PARAMETER_BYTES};
use plimsoll_core::{Error, Result};
use wgpu::{
    BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType,
    BufferBindingType, BufferSize, ComputePipeline, ComputePipelineDescriptor,
    PipelineCompilationOptions, PipelineLayoutDescriptor, ShaderModuleDescriptor, ShaderSource,
    ShaderStages,
};

use crate::device::Shared;
use crate::source;

/// A kernel ready to be dispatched.
#[derive(Clone)]
pub struct Pipeline {
    /// The compiled kernel.
    pub pipeline: ComputePipeline,
    /// The layout of its only bind group.
    pub layout: BindGroupLayout,
}

/// Compiled kernels by their content.
#[derive(Default)]
pub struct Pipelines(HashMap<Kernel, Pipeline>);

impl Pipelines {
    /// Compiles those of `kernels` that are new, on a few threads.
    pub fn compile(&mut self, shared: &Shared, kernels: &[Kernel]) -> Result<()> {
        let mut wanted: Vec<&Kernel> = Vec::new();
        for kernel in kernels {
            if !self.0.contains_key(kernel) && !wanted.contains(&kernel) {
                wanted.push(kernel);
            }
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let queue = Mutex::new(wanted.into_iter());
        let done: Mutex<Vec<(Kernel, Result<Pipeline>)>> = Mutex::default();
        let work = || {
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(kernel) = next else { break };
                let made = compile(shared, kernel);
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done.push((kernel.clone(), made));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        for (kernel, made) in done.into_inner().unwrap_or_else(PoisonError::into_inner) {
            self.0.insert(kernel, made?);
        }
        Ok(())
    }

    /// A kernel that has been compiled.
    pub fn get(&self, kernel: &Kernel) -> Option<&Pipeline> {
        self.0.get(kernel)
    }
}

fn compile(shared: &Shared, kernel: &Kernel) -> Result<Pipeline> {
    let fail = |message: String| Error::Kernel {
        kernel: kernel.name.clone(),
        device: shared.description.name.clone(),
        message,
    };
    let text = source::assemble(kernel).map_err(fail)?;
    let device = &shared.device;
    let made = shared.scoped(|| {
        let layout = layout(device, kernel.bindings.len() as u32);
        let descriptor = ShaderModuleDescriptor {
            label: Some(&kernel.name),
            source: ShaderSource::Wgsl(text.into()),
        };
        let module = device.create_shader_module(descriptor);
        let pipeline_layout = device.create_pipeline_layout(&PipelineLayoutDescriptor {
            label: Some(&kernel.name),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: Some(&kernel.name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            // Kernels write workgroup memory before they read it.
            compilation_options: PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..PipelineCompilationOptions::default()
            },
            cache: None,
        });
        Pipeline { pipeline, layout }
    });
    made.map_err(|e| fail(e.to_string()))
}

/// `tensors` storage bindings, then the parameter block.
fn layout(device: &wgpu::Device, tensors: u32) -> BindGroupLayout {
    let entry = |binding, ty, bytes| BindGroupLayoutEntry {
        binding,
        visibility: ShaderStages::COMPUTE,
        ty: BindingType::Buffer {
            ty,
            has_dynamic_offset: false,
            min_binding_size: BufferSize::new(bytes),
        },
        count: None,
    };
    // All tensors share the arena's buffers, and wgpu refuses a buffer that is
    // bound both for reading and for writing: all are bound for writing.
    let storage = BufferBindingType::Storage { read_only: false };
    let mut entries: Vec<BindGroupLayoutEntry> =
        (0..tensors).map(|i| entry(i, storage, 4)).collect();
    entries.push(entry(tensors, BufferBindingType::Uniform, PARAMETER_BYTES));
    device.create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &entries })
}
