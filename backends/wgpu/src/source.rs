//! Puts the text of a kernel together: constants, bindings, the parameter
//! block, the prelude, functions printed from expressions, and the kernel's
//! own file. The build script compiles this file too, and checks with it that
//! every shader is sound in every combination that lowering makes.

use std::fmt::Write;

use plimsoll_core::dtype::DType;
use plimsoll_core::expression::printer::{Wgsl, print};
use plimsoll_core::launch::{Access, Binding, Body, Kernel, PARAMETER_WORDS};

/// What every kernel may call.
pub const PRELUDE: &str = include_str!("../../../shaders/prelude.wgsl");

/// What the matmul kernels share.
pub const MATMUL: &str = include_str!("../../../shaders/matmul.wgsl");

/// What the kernels over planes share.
pub const POOL: &str = include_str!("../../../shaders/pool.wgsl");

/// What the attention kernels share.
pub const ATTENTION_TILES: &str = include_str!("../../../shaders/attention_tiles.wgsl");

/// What the convolution kernels share.
pub const CONVOLUTION: &str = include_str!("../../../shaders/convolution.wgsl");
/// What those share that gather what an element meets.
pub const CONVOLUTION_GATHER: &str = include_str!("../../../shaders/convolution_gather.wgsl");
/// What those share that make tiles of a product.
pub const CONVOLUTION_TILES: &str = include_str!("../../../shaders/convolution_tiles.wgsl");

/// All kernels by name.
pub const SHADERS: &[(&str, &str)] = &[
    ("attention", include_str!("../../../shaders/attention.wgsl")),
    ("attention_key_gradient", include_str!("../../../shaders/attention_key_gradient.wgsl")),
    ("attention_query_gradient", include_str!("../../../shaders/attention_query_gradient.wgsl")),
    ("attention_rows", include_str!("../../../shaders/attention_rows.wgsl")),
    ("avg_pool", include_str!("../../../shaders/avg_pool.wgsl")),
    ("avg_pool_gradient", include_str!("../../../shaders/avg_pool_gradient.wgsl")),
    ("conv", include_str!("../../../shaders/conv.wgsl")),
    ("conv_direct", include_str!("../../../shaders/conv_direct.wgsl")),
    ("conv_weight_gradient", include_str!("../../../shaders/conv_weight_gradient.wgsl")),
    (
        "conv_weight_gradient_direct",
        include_str!("../../../shaders/conv_weight_gradient_direct.wgsl"),
    ),
    ("cross_entropy", include_str!("../../../shaders/cross_entropy.wgsl")),
    ("cross_entropy_gradient", include_str!("../../../shaders/cross_entropy_gradient.wgsl")),
    ("embedding", include_str!("../../../shaders/embedding.wgsl")),
    ("embedding_gradient", include_str!("../../../shaders/embedding_gradient.wgsl")),
    ("map", include_str!("../../../shaders/map.wgsl")),
    ("matmul_register", include_str!("../../../shaders/matmul_register.wgsl")),
    ("matmul_subgroup", include_str!("../../../shaders/matmul_subgroup.wgsl")),
    ("matmul_tiled", include_str!("../../../shaders/matmul_tiled.wgsl")),
    ("moments", include_str!("../../../shaders/moments.wgsl")),
    ("moments_join", include_str!("../../../shaders/moments_join.wgsl")),
    ("max_pool", include_str!("../../../shaders/max_pool.wgsl")),
    ("max_pool_gradient", include_str!("../../../shaders/max_pool_gradient.wgsl")),
    ("reduce_columns", include_str!("../../../shaders/reduce_columns.wgsl")),
    ("reduce_rows", include_str!("../../../shaders/reduce_rows.wgsl")),
    ("rope", include_str!("../../../shaders/rope.wgsl")),
    ("strided_copy", include_str!("../../../shaders/strided_copy.wgsl")),
    ("upsample", include_str!("../../../shaders/upsample.wgsl")),
    ("upsample_gradient", include_str!("../../../shaders/upsample_gradient.wgsl")),
];

/// The WGSL text of a kernel, or why there is none.
pub fn assemble(kernel: &Kernel) -> Result<String, String> {
    let file = match &kernel.source {
        Some(source) => source,
        None => SHADERS
            .iter()
            .find(|(name, _)| *name == kernel.name)
            .map(|(_, file)| *file)
            .ok_or_else(|| format!("there is no shader {}.wgsl", kernel.name))?,
    };
    let mut text = String::new();
    for (name, value) in &kernel.constants {
        line(&mut text, format_args!("const {name}: u32 = {value}u;"));
    }
    for (place, binding) in kernel.bindings.iter().enumerate() {
        declare(&mut text, place, binding)?;
    }
    // Uniform arrays have a stride of 16 bytes, hence the vectors.
    let vectors = PARAMETER_WORDS / 4;
    line(
        &mut text,
        format_args!(
            "@group(0) @binding({}) var<uniform> parameter_block: array<vec4<u32>, {vectors}>;\n\
             fn parameter(i: u32) -> u32 {{ return parameter_block[i >> 2u][i & 3u]; }}",
            parameters_at(kernel)
        ),
    );
    text.push_str(PRELUDE);
    for body in &kernel.bodies {
        define(&mut text, kernel, body);
    }
    if kernel.source.is_none() {
        share(&mut text, kernel);
    }
    text.push_str(file);
    Ok(text)
}

/// Adds what kernels of a family share.
fn share(text: &mut String, kernel: &Kernel) {
    if kernel.name.starts_with("matmul_") {
        text.push_str(MATMUL);
    }
    if kernel.name.contains("pool") || kernel.name.starts_with("upsample") {
        text.push_str(POOL);
    }
    if kernel.name.starts_with("conv") {
        text.push_str(CONVOLUTION);
    }
    if matches!(kernel.name.as_str(), "conv" | "conv_direct") {
        text.push_str(CONVOLUTION_GATHER);
    }
    if matches!(kernel.name.as_str(), "conv" | "conv_weight_gradient") {
        text.push_str(CONVOLUTION_TILES);
    }
    if kernel.name.starts_with("attention") && kernel.name != "attention_rows" {
        if !kernel.bindings.iter().any(|b| b.name == "key_mask") {
            text.push_str("fn load_key_mask(i: u32) -> i32 { return 1; }\n");
        }
        text.push_str(ATTENTION_TILES);
    }
}

/// The binding of the parameter block: it follows the tensors.
pub fn parameters_at(kernel: &Kernel) -> u32 {
    kernel.bindings.len() as u32
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("writing to a string");
}

/// Declares a tensor with its `load_` and `store_` functions, which fix how
/// its elements are stored.
fn declare(text: &mut String, place: usize, binding: &Binding) -> Result<(), String> {
    let Binding { name, dtype } = binding;
    let (word, element) = match dtype {
        DType::F32 => ("f32", "f32"),
        DType::I32 => ("i32", "i32"),
        DType::U32 => ("u32", "u32"),
        // Bytes come four to a word, the first in the low bits.
        DType::U8 => ("u32", "u32"),
        DType::F16 | DType::BF16 => return Err(format!("{dtype} is not computed yet")),
    };
    line(
        text,
        // All tensors share the arena's buffers, and wgpu refuses a buffer that
        // is bound both as `read` and as `read_write`.
        format_args!(
            "@group(0) @binding({place}) var<storage, read_write> data_{name}: array<{word}>;"
        ),
    );
    if *dtype == DType::U8 {
        line(
            text,
            format_args!(
                "fn load_{name}(i: u32) -> u32 {{ \
                 return (data_{name}[i >> 2u] >> ((i & 3u) * 8u)) & 255u; }}"
            ),
        );
        return Ok(());
    }
    line(
        text,
        format_args!(
            "fn load_{name}(i: u32) -> {element} {{ return data_{name}[i]; }}\n\
             fn store_{name}(i: u32, value: {element}) {{ data_{name}[i] = value; }}"
        ),
    );
    Ok(())
}

/// Prints a body as a function.
fn define(text: &mut String, kernel: &Kernel, body: &Body) {
    let name = |k: usize| &kernel.bindings[body.inputs[k]].name;
    let argument = body.access.contains(&Access::Argument);
    let returns = body.outputs.is_empty();
    line(
        text,
        format_args!(
            "fn {}(i: u32{}){} {{",
            body.name,
            if argument { ", argument: f32" } else { "" },
            if returns { " -> f32" } else { "" }
        ),
    );
    coordinates(text, body);
    let strided: Vec<usize> =
        (0..body.access.len()).filter(|k| matches!(body.access[*k], Access::Strided(_))).collect();
    let load = |k: usize| match &body.access[k] {
        Access::Linear => format!("load_{}(i)", name(k)),
        Access::Scalar => format!("load_{}(0u)", name(k)),
        Access::Argument => "argument".to_string(),
        Access::Strided(used) => {
            let row = strided.iter().position(|s| *s == k).unwrap_or(0);
            format!("load_{}({})", name(k), index(body, row, used))
        }
        // Lowering gives this access to inputs that are not read by position.
        Access::Whole => format!("load_{}(i)", name(k)),
    };
    let (statements, outputs) =
        print(&body.expression, &Wgsl, "i", load, |k, i| format!("load_{}({i}u)", name(k)));
    text.push_str(&statements);
    // Everything has been read by now: outputs may lie in inputs' memory.
    for (value, place) in outputs.iter().zip(&body.outputs) {
        line(text, format_args!("    store_{}(i, {value});", kernel.bindings[*place].name));
    }
    if returns {
        line(text, format_args!("    return {};", outputs[0]));
    }
    text.push_str("}\n");
}

/// Names the coordinates `c0`, `c1`, … of position `i`, if anything is strided.
fn coordinates(text: &mut String, body: &Body) {
    if body.rank == 0 {
        return;
    }
    text.push_str("    var rest = i;\n");
    for d in (1..body.rank).rev() {
        let size = body.parameters_at + d;
        line(
            text,
            format_args!(
                "    let q{d} = rest / parameter({size}u);\n    \
                 let c{d} = rest - q{d} * parameter({size}u);\n    rest = q{d};"
            ),
        );
    }
    text.push_str("    let c0 = rest;\n");
}

/// The index of the strided input with row `row` of the strides.
fn index(body: &Body, row: usize, used: &[bool]) -> String {
    let terms: Vec<String> = used
        .iter()
        .enumerate()
        .filter(|(_, used)| **used)
        .map(|(d, _)| {
            let stride = body.parameters_at + body.rank * (row + 1) + d;
            format!("c{d} * parameter({stride}u)")
        })
        .collect();
    if terms.is_empty() { "0u".to_string() } else { terms.join(" + ") }
}
