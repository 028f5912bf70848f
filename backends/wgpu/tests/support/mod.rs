//! Runs single ops on every Vulkan, Metal or Direct3D device straight through
//! wgpu, without plan and executor, so that a fault shows where it is.
#![allow(dead_code)]

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use plimsoll_core::dtype::DType;
use plimsoll_core::launch::{Capabilities, Kernel, Launch, PARAMETER_WORDS, StorageId};
use plimsoll_core::ops::matmul::Variant;
use plimsoll_core::ops::{LowerContext, Op, Operand, Tensor64, TensorType};
use plimsoll_wgpu::source;

/// A device for tests.
pub struct Gpu {
    pub name: String,
    pub capabilities: Capabilities,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pipelines: Mutex<HashMap<Kernel, wgpu::ComputePipeline>>,
}

/// All devices; empty where there is no driver.
pub fn gpus() -> &'static [Gpu] {
    static GPUS: OnceLock<Vec<Gpu>> = OnceLock::new();
    GPUS.get_or_init(|| {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::PRIMARY;
        descriptor.flags = wgpu::InstanceFlags::empty();
        let instance = wgpu::Instance::new(descriptor);
        let adapters = instance.enumerate_adapters(wgpu::Backends::PRIMARY);
        pollster::block_on(adapters).iter().map(open).collect()
    })
}

fn open(adapter: &wgpu::Adapter) -> Gpu {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let subgroups = adapter.features() & wgpu::Features::SUBGROUP;
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        required_features: subgroups,
        required_limits: limits,
        ..Default::default()
    }))
    .expect("the device opens");
    let capabilities = Capabilities {
        subgroup_sizes: (!subgroups.is_empty())
            .then_some((info.subgroup_min_size, info.subgroup_max_size)),
        ..Capabilities::PORTABLE
    };
    Gpu { name: info.name, capabilities, device, queue, pipelines: Mutex::default() }
}

/// A step that is ready to be encoded.
pub type Step = (wgpu::ComputePipeline, wgpu::BindGroup, [u32; 3]);

impl Gpu {
    fn pipeline(&self, kernel: &Kernel) -> wgpu::ComputePipeline {
        let mut known = self.pipelines.lock().expect("no panic under the lock");
        if let Some(pipeline) = known.get(kernel) {
            return pipeline.clone();
        }
        let text = source::assemble(kernel).expect("the kernel has a source");
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(&kernel.name),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        });
        let entry = |binding, ty| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let at = source::parameters_at(kernel);
        let storage = wgpu::BufferBindingType::Storage { read_only: false };
        let mut entries: Vec<_> = (0..at).map(|i| entry(i, storage)).collect();
        entries.push(entry(at, wgpu::BufferBindingType::Uniform));
        let layout = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &entries,
        });
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        known.insert(kernel.clone(), pipeline.clone());
        pipeline
    }

    /// A buffer with this content.
    pub fn buffer(&self, words: &[u32], usage: wgpu::BufferUsages) -> wgpu::Buffer {
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 4 * words.len() as u64,
            usage,
            mapped_at_creation: true,
        });
        let mut view = buffer.get_mapped_range_mut(..).expect("is mapped");
        view.copy_from_slice(bytemuck::cast_slice(words));
        drop(view);
        buffer.unmap();
        buffer
    }

    /// A buffer that kernels bind.
    pub fn storage(&self, words: &[u32]) -> wgpu::Buffer {
        self.buffer(words, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC)
    }

    /// Prepares a launch on buffers.
    pub fn step(&self, launch: &Launch, storages: &[wgpu::Buffer]) -> Step {
        let pipeline = self.pipeline(&launch.kernel);
        let mut words = launch.parameters.clone();
        words.resize(PARAMETER_WORDS, 0);
        let parameters = self.buffer(&words, wgpu::BufferUsages::UNIFORM);
        let bound = launch.bindings.iter().map(|s| &storages[*s]).chain([&parameters]);
        let entries: Vec<wgpu::BindGroupEntry<'_>> = bound
            .enumerate()
            .map(|(i, b)| wgpu::BindGroupEntry {
                binding: i as u32,
                resource: b.as_entire_binding(),
            })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        (pipeline, group, launch.groups)
    }

    /// Runs steps `times` over and waits.
    pub fn run(&self, steps: &[Step], times: usize) {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        for (pipeline, group, [x, y, z]) in (0..times).flat_map(|_| steps) {
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, group, &[]);
            pass.dispatch_workgroups(*x, *y, *z);
        }
        drop(pass);
        self.queue.submit([encoder.finish()]);
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the work ends");
    }

    /// The words of a buffer.
    pub fn read(&self, buffer: &wgpu::Buffer) -> Vec<u32> {
        let back = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &back, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        back.map_async(wgpu::MapMode::Read, .., |mapped| mapped.expect("can be mapped"));
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the work ends");
        let view = back.get_mapped_range(..).expect("is mapped");
        bytemuck::pod_collect_to_vec(&view[..])
    }
}

/// How an op is run.
pub struct Setting {
    /// Which matmul kernel.
    pub variant: Variant,
    /// Most workgroups along a dimension.
    pub max_groups: u32,
    /// Output 0 takes the storage of this input.
    pub in_place: Option<usize>,
}

impl Default for Setting {
    fn default() -> Self {
        Setting { variant: Variant::Register, max_groups: 65_535, in_place: None }
    }
}

/// The words of an op's outputs. Outputs and workspace start as NaN.
pub fn execute(gpu: &Gpu, op: &Op, inputs: &[Tensor64], setting: &Setting) -> Vec<Vec<u32>> {
    let types: Vec<TensorType> =
        inputs.iter().map(|t| TensorType::new(t.shape.clone(), t.dtype)).collect();
    let outputs = op.infer(&types).expect("the case is sound");
    let mut contents: Vec<Vec<u32>> = inputs.iter().map(words).collect();
    let mut place = |storage: Option<StorageId>, t: &TensorType| {
        let storage = storage.unwrap_or_else(|| {
            contents.push(vec![u32::MAX; t.bytes() as usize / 4]);
            contents.len() - 1
        });
        Operand { storage, tensor: t.clone() }
    };
    let ins: Vec<Operand> = types.iter().enumerate().map(|(k, t)| place(Some(k), t)).collect();
    let first = |j: usize| if j == 0 { setting.in_place } else { None };
    let outs: Vec<Operand> = outputs.iter().enumerate().map(|(j, t)| place(first(j), t)).collect();
    let capabilities = Capabilities { max_groups: setting.max_groups, ..gpu.capabilities.clone() };
    let workspace = match op.workspace_bytes(&types, &capabilities) {
        0 => None,
        bytes => Some(place(None, &TensorType::new([bytes as usize / 4], DType::U32)).storage),
    };
    let launches = op.lower(&LowerContext {
        capabilities: &capabilities,
        inputs: &ins,
        outputs: &outs,
        workspace,
        matmul_variant: Some(setting.variant),
    });
    let storages: Vec<wgpu::Buffer> = contents.iter().map(|words| gpu.storage(words)).collect();
    let steps: Vec<Step> = launches.iter().map(|l| gpu.step(l, &storages)).collect();
    gpu.run(&steps, 1);
    outs.iter().map(|o| gpu.read(&storages[o.storage])).collect()
}

/// A tensor's words as devices hold them.
pub fn words(t: &Tensor64) -> Vec<u32> {
    match t.dtype {
        DType::U8 => {
            let bytes: Vec<u8> = t.values.iter().map(|x| *x as u8).collect();
            let word = |c: &[u8]| (0..c.len()).map(|i| u32::from(c[i]) << (8 * i)).sum();
            bytes.chunks(4).map(word).collect()
        }
        DType::I32 => t.values.iter().map(|x| *x as i32 as u32).collect(),
        DType::U32 => t.values.iter().map(|x| *x as u32).collect(),
        _ => t.values.iter().map(|x| (*x as f32).to_bits()).collect(),
    }
}

/// Words of an element type as numbers.
pub fn numbers(words: &[u32], dtype: DType) -> Vec<f64> {
    let number = |w: &u32| match dtype {
        DType::I32 => f64::from(*w as i32),
        DType::U32 | DType::U8 => f64::from(*w),
        _ => f64::from(f32::from_bits(*w)),
    };
    words.iter().map(number).collect()
}

/// Fails unless `got` is within a relative error, in the root of the mean
/// square, of `reference`, and NaN exactly where that is.
pub fn assert_near(what: &str, got: &[f64], reference: &[f64], bound: f64) {
    assert_eq!(got.len(), reference.len(), "{what}");
    let (mut error, mut norm) = (0.0, 0.0);
    for (i, (g, r)) in got.iter().zip(reference).enumerate() {
        assert_eq!(g.is_nan(), r.is_nan(), "{what}: element {i} is {g}, expected {r}");
        if !r.is_nan() && g != r {
            error += (g - r) * (g - r);
        }
        norm += if r.is_nan() { 0.0 } else { r * r };
    }
    let relative = if error == 0.0 { 0.0 } else { (error / norm).sqrt() };
    assert!(relative <= bound, "{what}: error {relative:.2e} exceeds {bound:.2e}");
}
